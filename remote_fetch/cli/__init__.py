"""The command line, in kcat's manner: one file a command, argparse underneath."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `remote-fetch` and return the exit code: 0 success, 1 an error (on stderr), 2 a wrong command line.

    130 after Ctrl-C, also while the modules are imported.
    """
    try:
        from remote_fetch.cli.app import run  # noqa: PLC0415 - `import remote_fetch.cli` stays cheap
    except KeyboardInterrupt:
        return 130

    return run(argv)
