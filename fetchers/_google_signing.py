"""Google's credentials as signers of URLs: a service account's own key, or its key at Google by IAM's `signBlob`.

Rules of the file:

- Which credentials there are is for google-auth to say: this module only asks what they can.
- A request to IAM has a deadline for connect and answer. google-auth repeats it at most twice.
- Users' own credentials cannot sign. The error names what can.
"""

from __future__ import annotations

from typing import Any

from fetchers._options import Timeouts
from remote_fetch.errors import ConfigError, StorageDenied

__all__ = ["MAX_IAM_EXPIRY_S", "is_by_iam", "signer_of"]

MAX_IAM_EXPIRY_S = 12 * 3600
"""Google rotates the keys with which IAM signs, and promises 12 hours for what they signed."""
_REFUSED = frozenset({401, 403, 404})
_NEEDED = "Without a key, the service account needs the role Service Account Token Creator on itself"
_IAM_SCOPE = "https://www.googleapis.com/auth/iam"


def signer_of(credentials: Any, timeouts: Timeouts) -> Any:
    """Credentials that sign (google.auth.credentials.Signing), for `Blob.generate_signed_url`.

    Raises ConfigError for credentials that cannot sign, and what google-auth raises.
    """
    from google.auth.credentials import AnonymousCredentials, Scoped, Signing  # noqa: PLC0415 - the extra brings it

    if credentials is None or isinstance(credentials, AnonymousCredentials):
        raise _cannot("there are no credentials (token=anon)")
    if isinstance(credentials, Signing):
        return credentials
    if not getattr(credentials, "service_account_email", None):
        raise _cannot(f"credentials of the kind {type(credentials).__name__} belong to no service account")
    return _by_iam(_with_scope(credentials) if isinstance(credentials, Scoped) else credentials, timeouts)


def is_by_iam(signer: Any) -> bool:
    """Whether a signer asks IAM for each signature."""
    from google.auth import iam  # noqa: PLC0415 - the extra brings it

    return isinstance(signer.signer, iam.Signer)


def _cannot(reason: str) -> ConfigError:
    return ConfigError(
        f"{reason}, so no URL can be signed",
        key="remote.storage.options.token",
        hint=f"Give the key of a service account. {_NEEDED}",
    )


def _with_scope(credentials: Any) -> Any:
    return credentials.with_scopes([_IAM_SCOPE])


def _by_iam(credentials: Any, timeouts: Timeouts) -> Any:
    """A signer that asks IAM, as the service account that the credentials are of."""
    from google.auth import iam  # noqa: PLC0415 - the extra brings it
    from google.auth.credentials import Signing  # noqa: PLC0415 - as above
    from google.auth.transport.requests import Request  # noqa: PLC0415 - as above

    transport = Request()

    def request(*args: Any, **kwargs: Any) -> Any:
        answer = transport(*args, **{**kwargs, "timeout": (timeouts.connect_s, timeouts.read_s)})
        if answer.status in _REFUSED and str(kwargs.get("url", "")).endswith(":signBlob"):
            raise StorageDenied("Google's IAM refuses to sign as the service account", hint=_NEEDED)
        return answer

    credentials.refresh(request)  # a machine's own account has its address only now
    make_signer: Any = iam.Signer
    iam_signer = make_signer(request, credentials, credentials.service_account_email)

    class ByIam(Signing):
        @property
        def signer(self) -> Any:
            return iam_signer

        @property
        def signer_email(self) -> str:
            return str(credentials.service_account_email)

        def sign_bytes(self, message: bytes) -> Any:
            return iam_signer.sign(message)

    return ByIam()
