"""Plans as pure values: the bytes to read, their cost, and the batches that an isolation level shows."""
