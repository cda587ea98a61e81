"""What is asked and decided before the first record: arguments, offsets, plans."""
