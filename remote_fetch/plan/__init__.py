"""Which bytes to read, what they will cost, and which batches an isolation level shows: pure values."""
