"""From the record areas of v2 batches to Arrow record batches, and on to messages; compiled where a C compiler is.

Rules of the package: pure; it knows neither files nor threads nor clocks, and reads what framing has checked and a
codec has decompressed. `columns`, `runs` and `messages` are what others use; `_columns`, `runs` and `_messages` are
sources that run compiled and interpreted.
"""
