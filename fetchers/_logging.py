"""Libraries below the fetchers write secrets at DEBUG: signed URLs, tokens, headers with credentials.

urllib3 logs a URL with its query, botocore the request it signs and the token it got, aiobotocore the endpoint with its
parameters. An application that sets the root logger to DEBUG did not ask for these.

Rules of the file:

- A level that the application has set on one of these loggers stays as it is.
"""

from __future__ import annotations

import logging

__all__ = ["LIBRARIES", "hold_back_debug"]

LIBRARIES = (
    "adlfs", "aiobotocore", "aiohttp", "azure", "boto3", "botocore", "fsspec", "gcsfs", "google", "msal", "requests",
    "s3fs", "s3transfer", "urllib3",
)  # fmt: skip


def hold_back_debug() -> None:
    """Let the libraries' loggers begin at INFO, unless the application has set their level."""
    for name in LIBRARIES:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
