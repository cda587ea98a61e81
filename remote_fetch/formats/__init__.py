"""Kafka's bytes: pure parsers, each the one place that knows its layout."""
