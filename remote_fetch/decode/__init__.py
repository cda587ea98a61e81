"""From the bytes of whole batches to columns, Arrow record batches and messages. Native if there is a Rust compiler.

Rules of the package:

- Pure. It knows no files, threads or clocks.
- Other packages use `columns`, `run_decoder`, `decoded_rows`, `gatherer` and `messages`.
- What runs once for each record is native (`native/`), or plain Python in the `_reference` modules: `engine` has the
  choice.
"""
