"""From the bytes of whole batches to Arrow record batches and to messages. Native if there is a Rust compiler.

Rules of the package:

- Pure. It knows no files, threads or clocks.
- Other packages use `columns`, `run_decoder`, `gatherer` and `messages`.
- `run_reference` says in plain Python what `native/` does, and runs where nothing native was built.
- The source of `_messages` runs compiled by Cython or interpreted.
"""
