"""From the record areas of v2 batches to Arrow record batches, compiled where a C compiler is at hand.

Rules of the package: pure; it knows neither files nor threads nor clocks, and reads what framing has checked and a
codec has decompressed. `columns` is what others use; `_columns` is the inner loop, one source that runs compiled and
interpreted.
"""
