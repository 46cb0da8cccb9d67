"""Secrets stay where they are kept: not in output, logs, errors, metrics or the list of processes."""

from __future__ import annotations

import base64
import json
import urllib.request
from pathlib import Path

import pytest

from tests.cli_e2e import commands
from tests.cli_e2e.world import free_port
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site
from tests.scenarios import scenario
from tests.security.broker import Secured, password_of
from tests.security.roles import allow_role

SECRET = password_of("joiner")
MINIMAL = Path(__file__).resolve().parents[2] / "configs" / "minimal.yaml"
VARIABLE = "KAFKA_SECRET_OF_A_TEST"
MECHANISMS = {"PLAIN": "sasl.password", "OAUTHBEARER": "sasl.oauthbearer.client.secret"}
ONE_SHOT = (
    ("config", "check"),
    ("config", "show"),
    ("config", "show", "--json"),
    ("rights", "--as", "other"),
    ("topics", "ensure", "--apply"),
    ("inspect", "snapshot"),
    ("inspect", "tick", "1", "-p", "0"),
    ("alias", "list"),
    ("pause",),
    ("promote", "alias", "model"),
)


def revealing(text: str) -> list[str]:
    """The forms of the secret that a text holds: as it is, with its user as HTTP has it, and as a token."""
    forms = [SECRET, base64.b64encode(f"joiner:{SECRET}".encode()).decode(), base64.b64encode(SECRET.encode()).decode()]
    return [form for form in [*forms, "eyJhbGciOi", "sasl.password=" + SECRET] if form in text]


@pytest.fixture(params=sorted(MECHANISMS))
def config(
    request: pytest.FixtureRequest, secured: Secured, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> tuple[Site, Path, int]:
    """A model's file with all of librdkafka's debugging switched on, its secret in a variable or in a file."""
    mechanism = request.param
    site = make_site(scenario("plain", 1))
    site.produce()
    for role in ("joiner", "learner", "scorer", "topics", "promote"):
        allow_role(secured, site.config, role, "joiner")
    option = MECHANISMS[mechanism]
    kept = secured.folder / "secret-of-a-test"
    kept.write_text(SECRET, encoding="utf-8")
    monkeypatch.setenv(VARIABLE, SECRET)
    where = {"env": VARIABLE} if mechanism == "PLAIN" else {"file": str(kept)}
    options = {**secured.options(mechanism, "joiner"), option: where, "debug": "all", "log_level": "7"}
    port = free_port()
    tree = {
        **site.changed(telemetry={"http_host": "127.0.0.1", "http_port": port, "log_level": "debug"}).shown(),
        "kafka": options,
    }
    file = site.folder / "secret.yaml"
    file.write_text(json.dumps(tree), encoding="utf-8")
    return site, file, port


def test_no_command_shows_a_secret(config: tuple[Site, Path, int]) -> None:
    """Each command's output, log and errors, with debugging on; and the metrics and the command line of a role."""
    _, file, port = config
    with commands.started("run", "-c", file) as role:
        role.wait_for("checkpoint")
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        line = Path(f"/proc/{role.process.pid}/cmdline").read_text()
        ended = role.stop()
    assert "stream_learner_learner_ticks_total" in metrics
    assert "rdkafka" in ended.err or "librdkafka" in ended.err, "debugging is on"
    done = commands.run_side_by_side(*[(*command, "-c", file) for command in ONE_SHOT])
    assert {one.code for one in done} & {0}
    for text in (metrics, line, ended.out, ended.err, *(one.out for one in done), *(one.err for one in done)):
        assert revealing(text) == []


def test_a_secret_on_the_command_line_is_refused() -> None:
    """It would be in the list of processes. The message does not repeat it; a reference elsewhere is no secret."""
    given = ("--set", "model=ctr", "--set", "kafka.bootstrap.servers=localhost:1")
    for setting in (f"kafka.sasl.password={SECRET}", f"kafka={{bootstrap.servers: a, ssl.key.password: {SECRET}}}"):
        ended = commands.run("config", "check", *given, "--set", setting)
        assert ended.code == 10
        assert "on the command line" in ended.err
        assert revealing(ended.out + ended.err) == []
    ended = commands.run("config", "show", "-c", str(MINIMAL), "--set", "kafka.sasl.password={env: HOME}")
    assert ended.code == 0
