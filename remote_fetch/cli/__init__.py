"""The command line, in kcat's manner: one file a command, argparse underneath."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NEGATIVE", "main"]

NEGATIVE = 3
"""The exit code of a no, such as no match or a difference. 1 and 2 mean, in every command, that it could not run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `remote-fetch` and return the exit code: 0 success, 1 an error (on stderr), 2 a wrong command line.

    130 after Ctrl-C, also while the modules are imported.
    """
    try:
        from remote_fetch.cli.app import run  # noqa: PLC0415 - `import remote_fetch.cli` stays cheap
    except KeyboardInterrupt:
        return 130

    return run(argv)
