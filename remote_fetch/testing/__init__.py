"""Tools for tests of plug-ins and of this package: logs with a known answer, and stores that misbehave on demand.

Write a log with `LogBuilder`, put its `tiered()` segments into a store, read them back, and compare with `expected()`.

Rules of the package:

- It needs only the core dependencies of remote-fetch.
- hypothesis and pytest are imported only by the functions that use them.
"""
