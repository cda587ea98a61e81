"""An S3 server over a directory: versitygw, which checks signatures, their age, identities and bucket policies.

Rules of the file:

- The bucket *is* the directory, which may be the directory to which a broker tiers. The server keeps its own files
  elsewhere.
- Objects are written into the directory.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.certificates import Certificates
from tests.stores.artifacts import versitygw
from tests.stores.servers import Server, configs_of, free_port, serving

__all__ = ["BUCKET", "S3Server", "client_of", "s3_server"]

BUCKET = "tier"
_KEY, _SECRET = "root-key", "root-secret-4711"
_ADMIN_TIMEOUT_S = 150


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server whose one bucket is `directory`. `authority` has signed its certificate; None: it has no TLS."""

    server: Server
    directory: Path
    authority: Path | None = None

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return self.server.endpoint

    def put(self, name: str, data: bytes) -> None:
        """As `StoreServer.put`."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def configs(self, **options: str) -> dict[str, str]:
        """As `StoreServer.configs`; the root user's by default."""
        own = {"key": _KEY, "secret": _SECRET, "endpoint_url": self.endpoint}
        if self.authority is not None:
            own["client_kwargs"] = json.dumps({"verify": str(self.authority)})
        return configs_of(f"s3://{BUCKET}", {**own, **options})

    def client(self, key: str = _KEY, secret: str = _SECRET) -> Any:
        """boto3's client."""
        return client_of(self.endpoint, key, secret, None if self.authority is None else str(self.authority))

    def add_user(self, name: str, secret: str) -> None:
        """A user without any permission, or one with a new secret."""
        account = ["-a", name, "-s", secret]
        if not self._admin("create-user", *account, "-r", "user"):
            assert self._admin("update-user", *account), self.server.log_tail()

    def allow(self, user: str, *actions: str) -> None:
        """Allow a user these actions on the bucket and its objects, and refuse all other users."""
        if not actions:
            self.client().delete_bucket_policy(Bucket=BUCKET)
            return
        places = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
        statements = [
            {
                "Effect": "Allow",
                "Principal": user,
                "Action": action,
                "Resource": places[0] if action == "s3:ListBucket" else places[1],
            }
            for action in actions
        ]
        policy = {"Version": "2012-10-17", "Statement": statements}
        self.client().put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))

    def _admin(self, *arguments: str) -> bool:
        command = [self.server.command[0], "admin", "-a", _KEY, "-s", _SECRET, "-er", self.endpoint, *arguments]
        done = subprocess.run(command, capture_output=True, timeout=_ADMIN_TIMEOUT_S, check=False)
        return done.returncode == 0


def client_of(endpoint: str, key: str, secret: str, authority: str | None = None) -> Any:
    """boto3's client."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        verify=authority,
        config=Config(signature_version="s3v4"),
    )


@contextmanager
def s3_server(folder: Path, directory: Path, tls: Certificates | None = None) -> Iterator[S3Server]:
    """A server with its own things in `folder`, over `directory`. Raises MissingTool."""
    program = versitygw()
    for name in ("root", "side", "iam"):
        (folder / name).mkdir(parents=True)
    directory.mkdir(parents=True, exist_ok=True)
    (folder / "root" / BUCKET).symlink_to(directory)
    port = free_port()
    options = ["--port", f"127.0.0.1:{port}", "--keep-alive", "--iam-dir", str(folder / "iam"), "--iam-cache-disable"]
    if tls is not None:
        options += ["--cert", str(tls.certificate), "--key", str(tls.key)]
    backend = ["posix", "--bucketlinks", "--sidecar", str(folder / "side"), str(folder / "root")]
    server = Server(
        [str(program), *options, *backend],
        folder / "versitygw.log",
        port,
        {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET},
        "http" if tls is None else "https",
    )
    with serving(server):
        yield S3Server(server, directory, None if tls is None else tls.authority)
