"""Prepares a read before the first record: checks its arguments, finds its offsets, makes its plans."""
