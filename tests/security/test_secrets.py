"""Secrets stay where they are kept: not in output, logs, errors, metrics or the list of processes."""

from __future__ import annotations

import base64
import json
import os
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli_e2e import commands
from tests.cli_e2e.world import free_port
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, wait_until
from tests.scenarios import scenario
from tests.security.broker import Secured, password_of
from tests.security.roles import allow_role
from tests.suite.share import cases
from tests.waiting import patience

SECRET = password_of("joiner")
MINIMAL = Path(__file__).resolve().parents[2] / "configs" / "minimal.yaml"
VARIABLE = "KAFKA_SECRET_OF_A_TEST"
MECHANISMS = {"PLAIN": "sasl.password", "OAUTHBEARER": "sasl.oauthbearer.client.secret"}
OneShots = tuple[tuple[int, tuple[str, ...]], ...]
ONE_SHOT: OneShots = (
    (0, ("topics", "ensure", "--apply")),
    (0, ("config", "check")),
    (0, ("config", "show")),
    (0, ("config", "show", "--json")),
    (0, ("rights", "--as", "other")),
    (0, ("score", os.devnull)),
    (0, ("inspect", "snapshot")),
    (0, ("inspect", "tick", "1", "-p", "0")),
    (0, ("alias", "list")),
    (0, ("pause",)),
    (56, ("promote", "nothing", "--alias", "served")),
    (0, ("diff", "{model}", "{model}")),
    (23, ("backfill", "--as", "other", "--from", "earliest")),
)
"""Commands that end by themselves, each with its exit code; the first makes what the others need."""


def revealing(text: str) -> list[str]:
    """The forms of the secret that a text holds: as it is, with its user as HTTP has it, and as a token."""
    forms = [SECRET, base64.b64encode(f"joiner:{SECRET}".encode()).decode(), base64.b64encode(SECRET.encode()).decode()]
    return [form for form in [*forms, "eyJhbGciOi", "sasl.password=" + SECRET] if form in text]


@pytest.fixture
def config(
    request: pytest.FixtureRequest, secured: Secured, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> tuple[Site, Path, int]:
    """A model's file with all of librdkafka's debugging switched on, its secret in a variable or in a file."""
    mechanism = request.param
    site = make_site(scenario("plain", 1))
    site.produce()
    for role in ("joiner", "learner", "scorer", "topics", "promote", "diff"):
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


@pytest.mark.parametrize("config", cases(["PLAIN", "OAUTHBEARER"], ["PLAIN"], "nightly"), indirect=True)
def test_no_command_shows_a_secret(config: tuple[Site, Path, int]) -> None:
    """Each command's output, log and errors, with debugging on; and the metrics and the command line of a role."""
    site, file, port = config
    with commands.started("run", "-c", file) as role:
        role.wait_for("checkpoint")
        metrics = fetched(f"http://127.0.0.1:{port}/metrics")
        line = cmdline_of(role)
        ended = role.stop()
    assert "stream_learner_learner_ticks_total" in metrics
    assert "rdkafka" in ended.err or "librdkafka" in ended.err, "debugging is on"
    shown = [metrics, line, ended.out, ended.err]
    port = free_port()
    serve = [
        part for one in (f"serve.port={port}", "serve.drain=0s", "telemetry.http_port=0") for part in ("--set", one)
    ]
    with commands.started("serve", "-c", file, *serve) as server:
        server.wait_for("ready")
        shown += [
            cmdline_of(server),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2", timeout=patience(10)).read().decode(),
        ]
        ended = server.stop()
    shown += [ended.out, ended.err]
    shown += outputs_of(ONE_SHOT[:1], site, file) + outputs_of(ONE_SHOT[1:], site, file)
    for text in shown:
        assert revealing(text) == []


def fetched(url: str) -> str:
    """The answer to a request."""
    with urllib.request.urlopen(url, timeout=patience()) as answer:
        return str(answer.read().decode())


def outputs_of(one_shots: OneShots, site: Site, file: Path) -> list[str]:
    """The output of commands that run side by side, and their lines in the list of processes; each must succeed."""
    shown = []
    with ExitStack() as stack:
        running = [
            stack.enter_context(commands.started(*(site.model if w == "{model}" else w for w in words), "-c", file))
            for _, words in one_shots
        ]
        shown += [cmdline_of(command) for command in running]
        for (code, words), command in zip(one_shots, running, strict=True):
            ended = command.ended()
            assert ended.code == code, (words, ended.err[-2000:])
            shown += [ended.out, ended.err]
    return shown


def cmdline_of(command: commands.Command) -> str:
    """Its line in the list of processes; empty for a moment, while it begins."""
    place = Path(f"/proc/{command.process.pid}/cmdline")
    wait_until(lambda: "stream_learner" in place.read_text(), "it has begun")
    return place.read_text()


def test_a_secret_on_the_command_line_is_refused() -> None:
    """It would be in the list of processes. The message does not repeat it; a reference elsewhere is no secret."""
    given = ("--set", "model=ctr", "--set", "kafka.bootstrap.servers=localhost:1")
    settings = (f"kafka.sasl.password={SECRET}", f"kafka={{bootstrap.servers: a, ssl.key.password: {SECRET}}}")
    *refused, shown = commands.run_side_by_side(
        *(["config", "check", *given, "--set", setting] for setting in settings),
        ["config", "show", "-c", MINIMAL, "--set", "kafka.sasl.password={env: HOME}"],
    )
    for ended in refused:
        assert ended.code == 10
        assert "on the command line" in ended.err
        assert revealing(ended.out + ended.err) == []
    assert shown.code == 0
