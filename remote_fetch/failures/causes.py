"""The causes of errors: a URL may hold a password, and its query may be a signature. No error shows them.

Rules of the file: a cause without a URL is kept as it is.
"""

from __future__ import annotations

import re
import traceback

from remote_fetch.failures.store_errors import RefusedError, answered_status

__all__ = ["as_cause"]

_URL = re.compile(r"://|\burl: /")
"""A URL in the text of an error, also as requests and urllib3 show it: without its host."""


def as_cause(error: BaseException | None) -> BaseException | None:
    """The error, unless it or an error behind it shows a URL.

    Then it is an error that has only the HTTP status, the number (errno), or the name of the class.
    """
    if error is None or _URL.search("".join([repr(error), *traceback.format_exception(error, limit=0)])) is None:
        return error
    status, number, name = answered_status(error), getattr(error, "errno", None), type(error).__name__
    if status is not None:
        return RefusedError(status)
    return ConnectionError(name) if number is None else ConnectionError(number, name)
