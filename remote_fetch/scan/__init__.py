"""Turns plans into rows: reads the bytes in order, decodes the batches, and goes on after an error if possible."""
