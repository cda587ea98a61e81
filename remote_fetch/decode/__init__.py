"""From the record areas of v2 batches to Arrow record batches and to messages. Compiled if there is a C compiler.

Rules of the package:

- Pure. It knows no files, threads or clocks.
- Its input has been checked by framing and decompressed by a codec.
- Other packages use `columns`, `runs` and `messages`.
- The sources of `_columns`, `runs` and `_messages` run compiled or interpreted.
"""
