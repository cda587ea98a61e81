"""What plug-in authors and our own tests share: logs with a known answer, and stores that misbehave on demand.

Rules of the package: it needs nothing beyond the package's core dependencies; hypothesis and pytest are imported only
by what uses them, when it is used. Write a log with `LogBuilder`, put its `tiered()` segments into a store, read them
back, and compare with `expected()`.
"""
