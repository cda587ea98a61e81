"""Errors of this package, made of those that brokers, files and stores raise."""
