"""From plans to rows: bytes in order, batches, rows, and the ways on after an error."""
