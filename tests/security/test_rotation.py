"""Credentials that change while the roles run: nothing stops, nothing is lost, and the old ones are no longer used."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream_learner.operations.rights import rights_of
from tests.e2e.checks import assert_balance, assert_log_equals
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import scenario
from tests.security.broker import Secured, password_of
from tests.security.roles import Roles
from tests.waiting import patience

OLD, NEW = "joiner", "operator"
ROLES = ("joiner", "learner", "scorer")
SETTINGS = 4
"""The joiner's, the learner's, those of its look at the control topic, the scorer's: each says that they changed."""


def certificate_files(secured: Secured, folder: Path, user: str) -> None:
    """A user's certificate and key, put in place as Kubernetes does: all at once."""
    mine = secured.certificate(user)
    put(folder, {"tls.crt": mine.certificate.read_bytes(), "tls.key": mine.key.read_bytes()})


def password_files(secured: Secured, folder: Path, user: str) -> None:
    """A user's name and password."""
    put(folder, {"username": user.encode(), "password": password_of(user).encode()})


def put(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files into a folder of their own, and let the link `now` point at it."""
    target = folder / f"version-{len(list(folder.iterdir()))}"
    target.mkdir()
    for name, content in files.items():
        (target / name).write_bytes(content)
    link = folder / "next"
    link.symlink_to(target)
    os.replace(link, folder / "now")  # noqa: PTH105 -- Path.replace does the same


def certificate_options(secured: Secured, folder: Path) -> dict[str, Any]:
    """A client of mutual TLS whose certificate is in the folder."""
    files = {"ssl.certificate.location": str(folder / "now/tls.crt"), "ssl.key.location": str(folder / "now/tls.key")}
    return secured.options("MUTUAL", OLD, **files)


def password_options(secured: Secured, folder: Path) -> dict[str, Any]:
    """A client of SCRAM whose name and password are in the folder."""
    kept = {f"sasl.{name}": {"file": str(folder / "now" / name)} for name in ("username", "password")}
    return {**secured.options("SCRAM-SHA-512", OLD), **kept}


Write = Callable[[Secured, Path, str], None]
Options = Callable[[Secured, Path], dict[str, Any]]


@pytest.mark.parametrize(
    ("write", "options"),
    [
        pytest.param(certificate_files, certificate_options, id="mutual TLS"),
        pytest.param(password_files, password_options, id="user and password"),
    ],
)
def test_roles_go_on_with_new_credentials_and_without_the_old(
    write: Write,
    options: Options,
    secured: Secured,
    make_site: MakeSite,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Files change to those of another principal, then the first one loses every right: each client has changed over.

    The training log is the oracle's all the same.
    """
    site = make_site(scenario("plain", 2))
    folder = tmp_path / "secrets"
    folder.mkdir()
    write(secured, folder, OLD)
    roles = Roles(site, lambda user: options(secured, folder))
    allow_all_roles(secured, site, OLD)
    learner = roles.learner()
    site.produce(0, 0.4)
    with (
        caplog.at_level("INFO", "stream_learner"),
        capture_logs() as logged,
        running(roles.joiner(), learner),
        roles.scorer() as scorer,
    ):
        scorer.wait_ready(patience())
        allow_all_roles(secured, site, NEW)
        write(secured, folder, NEW)
        wait_until(lambda: caplog.text.count("clients are made anew") == SETTINGS, "every role has seen the new files")
        wait_until(lambda: any(e["event"] == "producer_renewed" for e in logged), "the joiner has a new producer")
        before = learner.tick
        site.produce(0.4, 0.7)
        wait_until(lambda: scorer.version > before, "a version made and followed with new credentials")
        secured.forbid_all(OLD)
        site.produce(0.7, 1)
        wait_until(lambda: site.folded(learner), "every tick closed and folded")
        wait_until(lambda: scorer.version == learner.tick, "the last version is served")
        assert scorer.ready
    assert_log_equals(site, site.scenario.expected())
    assert_balance(site)


def allow_all_roles(secured: Secured, site: Site, user: str) -> None:
    """The rights of all three roles for one user."""
    rights = [right for role in ROLES for right in rights_of(site.config, role)]
    secured.allow_all(user, {(right.kind, right.name, right.operation) for right in rights})


def test_tokens_that_live_for_seconds_are_renewed(secured: Secured, make_site: MakeSite) -> None:
    """Roles go on for several lifetimes of their tokens, and over a provider that is away for longer than one."""
    site = make_site(scenario("plain", 1))
    roles = Roles(site, lambda user: secured.options("OAUTHBEARER", OLD))
    allow_all_roles(secured, site, OLD)
    learner = roles.learner()
    issued_before = secured.tokens.issued.get(OLD, 0)
    site.produce(0, 0.3)

    def issued() -> int:
        return secured.tokens.issued[OLD] - issued_before

    with running(roles.joiner(), learner), roles.scorer() as scorer:
        scorer.wait_ready(patience())
        clients, before = issued(), scorer.version
        wait_until(lambda: issued() > 3 * clients, "every client has had more than two tokens")
        site.produce(0.3, 0.6)
        wait_until(lambda: scorer.version > before, "a version made and followed with later tokens")
        secured.tokens.away = True
        try:
            wait_until(lambda: secured.tokens.refused > 3, "the provider is missed")
        finally:
            secured.tokens.away = False
        site.produce(0.6, 1)
        wait_until(lambda: site.folded(learner), "every tick closed and folded")
        wait_until(lambda: scorer.version == learner.tick, "the last version is served")
    assert_log_equals(site, site.scenario.expected())
