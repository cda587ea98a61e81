"""The checks of operators: whether the store gives what the broker gives."""
