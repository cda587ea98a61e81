"""From plans to rows: bytes in order, batches, and what to do if something fails."""
