"""Certificates for the tests, made with openssl.

They are PEM files, signed by an authority that lives as long as the folder. It must never make a certificate that
anything outside a test might trust.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import patience

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
ENCRYPTED_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path

    @property
    def pem(self) -> str:
        """The certificate's text."""
        return self.certificate.read_text()

    @property
    def key_pem(self) -> str:
        """The key's text."""
        return self.key.read_text()


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.name = name
        self.file = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        subject = ["-subj", f"/O=stream-learner tests/CN={name}"]
        _openssl("req", "-x509", *NEW_KEY, *subject, "-days", "2", "-keyout", self._key, "-out", self.file)

    @property
    def pem(self) -> str:
        """Its own certificate."""
        return self.file.read_text()

    def issue(
        self, name: str, *, file: str = "", hosts: Sequence[str] = ("localhost",), days: int = 2, password: str = ""
    ) -> Certificate:
        """A certificate for CN=`name`, and DNS names; negative `days` make one that has expired."""
        stem = self._folder / (file or name)
        made = Certificate(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        extensions.write_text("subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts) + "\n")
        new_key = [*ENCRYPTED_KEY, "-passout", f"pass:{password}"] if password else NEW_KEY
        _openssl("req", *new_key, "-keyout", made.key, "-out", request, "-subj", f"/O=Ads/CN={name}")
        by = ["-CA", self.file, "-CAkey", self._key, "-CAcreateserial"]
        _openssl(
            "x509", "-req", "-in", request, *by, "-days", str(days), "-extfile", extensions, "-out", made.certificate
        )
        return made


def rsa_key(file: Path) -> Path:
    """A private RSA key, for signing tokens."""
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", file)
    return file


def rsa_modulus(key: Path) -> int:
    """The modulus of an RSA key."""
    return int(_openssl("rsa", "-in", key, "-noout", "-modulus").decode().strip().partition("=")[2], 16)


def rsa_sign(key: Path, data: bytes) -> bytes:
    """RSASSA-PKCS1-v1_5 with SHA-256: what tokens call RS256."""
    return _openssl("dgst", "-sha256", "-sign", key, data=data)


def _openssl(command: str, *arguments: str | Path, data: bytes = b"") -> bytes:
    done = subprocess.run(
        ["openssl", command, *map(str, arguments)], input=data, capture_output=True, check=False, timeout=patience()
    )
    assert done.returncode == 0, f"openssl {command}: {done.stderr.decode(errors='replace')}"
    return done.stdout
