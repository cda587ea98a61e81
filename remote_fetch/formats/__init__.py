"""Parsers of Kafka's binary and text formats. They do no I/O. Exactly one module knows each format."""
