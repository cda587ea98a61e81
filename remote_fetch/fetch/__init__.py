"""Reads the bytes of slices: finds a fetcher by name, and reads ahead within a budget of memory."""
