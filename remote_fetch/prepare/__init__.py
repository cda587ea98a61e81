"""Everything that is decided before the first record: arguments, offsets, plans."""
