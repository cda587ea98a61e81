"""Vended access over HTTP (KIP-1254): the tier without a key to the bucket, and with the brokers' ACLs in force."""
