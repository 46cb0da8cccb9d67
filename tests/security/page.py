"""The blocks of docs/security.md, and what stands in for its files, addresses and secrets.

It must never change an option of a block, only the places that it names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stream_learner.config.yaml import read_yaml
from tests.security.broker import Secured, password_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
USER_VARIABLE = "KAFKA_USER"


def blocks() -> dict[str, dict[str, Any]]:
    """The `kafka` sections of the page, by mechanism: TLS, MUTUAL, or the name of a SASL mechanism."""
    found: dict[str, dict[str, Any]] = {}
    for text in re.findall(r"```yaml\n(kafka:\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        options = read_yaml(text).data["kafka"]
        name = options.get("sasl.mechanism") or ("MUTUAL" if "ssl.key.location" in options else "TLS")
        found.setdefault(name, options)
    return found


def options_for(secured: Secured, options: dict[str, Any], mechanism: str, user: str) -> dict[str, Any]:
    """A block's options with this broker's addresses and files, as `user`; the variable of the user's name is
    `USER_VARIABLE`."""
    mine = secured.certificate(user)
    secret = secured.folder / f"{user}.password"
    secret.write_text(password_of(user) + "\n", encoding="utf-8")
    known = {
        "kafka.example.org:9093": secured.options(mechanism, user)["bootstrap.servers"],
        "/etc/stream-learner/ca.pem": str(secured.authority.file),
        "/etc/stream-learner/tls.crt": str(mine.certificate),
        "/etc/stream-learner/tls.key": str(mine.key),
        "/run/secrets/kafka-password": str(secret),
        "https://login.example.org/token": secured.tokens.token_url,
        "joiner": user,
    }
    return {name: _replaced(value, known) for name, value in options.items()}


def _replaced(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(inner, known) for name, inner in value.items()}
    return known.get(value, value)
