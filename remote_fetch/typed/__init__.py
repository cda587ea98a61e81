"""Typed columns: keys and values decoded by their schemas, from the binary columns of a read."""
