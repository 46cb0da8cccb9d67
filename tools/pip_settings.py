"""pip's settings of this machine, as files for the build of an image: `python -m tools.pip_settings FOLDER`.

In: what `pip config list` prints, and the variables that name a bundle of certificates. Out: `pip.conf` and `ca.crt` in
the folder, for their owner only; `ca.crt` is empty where no bundle is set. This file must never print a value: an
index's address may hold a password.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

KEPT = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries", "cert")
SOURCES = ("global", "install", ":env:")
"""Sections of pip's settings; the later one wins."""
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CERTIFICATES = "/run/secrets/ca.crt"
"""The path at which the build finds `ca.crt`."""


def pip_settings(listed: str) -> dict[str, str]:
    """The settings that matter to a build elsewhere, from the lines of `pip config list`."""
    found = {}
    for source in SOURCES:
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            section, _, key = name.rpartition(".")
            if section == source and key in KEPT:
                found[key] = str(ast.literal_eval(value)).strip()
    if "default-timeout" in found:
        found.setdefault("timeout", found.pop("default-timeout"))
    return found


def certificates(settings: Mapping[str, str], environment: Mapping[str, str]) -> bytes:
    """The bundle of certificates that pip uses here; empty where it uses its own."""
    file = settings.get("cert") or next((environment[name] for name in BUNDLES if environment.get(name)), None)
    return Path(file).read_bytes() if file else b""


def write(folder: Path, listed: str, environment: Mapping[str, str]) -> None:
    """Write both files."""
    settings = pip_settings(listed)
    bundle = certificates(settings, environment)
    if bundle:
        settings["cert"] = CERTIFICATES
    lines = [f"{key} = {' '.join(value.split())}\n" for key, value in settings.items()]
    for name, content in (("pip.conf", "".join(["[global]\n", *lines]).encode()), ("ca.crt", bundle)):
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)


def main() -> None:
    """Ask pip, and write what it says."""
    run = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    write(Path(sys.argv[1]), run.stdout if run.returncode == 0 else "", os.environ)


if __name__ == "__main__":
    main()
