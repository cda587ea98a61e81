"""`python -m remote_fetch`: the same as the command `remote-fetch`."""

from __future__ import annotations

import sys

from remote_fetch.cli import main

if __name__ == "__main__":
    sys.exit(main())
