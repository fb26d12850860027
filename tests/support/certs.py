"""Certificates for tests, made by openssl: a test that uses them carries `needs("openssl")`."""

from __future__ import annotations

import subprocess
from pathlib import Path

PASSWORD = "sesame"


class Pair:
    """A self-signed certificate for localhost, and its key; both PEM, and the key only its owner's to read."""

    def __init__(self, folder: Path, name: str = "server") -> None:
        self.cert, self.key, self.locked = (folder / f"{name}-{what}.pem" for what in ("cert", "key", "locked"))
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-keyout", str(self.key), "-out", str(self.cert), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        )
        self._run("pkey", "-in", str(self.key), "-aes256", "-passout", f"pass:{PASSWORD}", "-out", str(self.locked))
        for path in (self.key, self.locked):
            path.chmod(0o600)

    @staticmethod
    def _run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
