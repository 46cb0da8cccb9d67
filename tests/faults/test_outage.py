"""A broker that is away for longer than a session lasts, under every role, and comes back with its data."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli_e2e.world import free_port
from tests.e2e.checks import (
    assert_equal_to_oracle,
)
from tests.e2e.processes import RoleProcess, process_of
from tests.e2e.site import Site, wait_until
from tests.faults.conftest import MakeSite
from tests.faults.said import events, said, why_not_ready
from tests.kafka_broker.broker import Broker
from tests.scenarios import scenario

pytestmark = pytest.mark.thorough

AWAY = {
    "join": {"the joiner cannot reach its group"},
    "learn": {"the learner cannot read the training log"},
    "backfill": {"the joiner cannot reach its group", "the learner cannot read the training log"},
}
"""The reason that each role gives for not being ready while the broker is away; a server stays ready."""
SERVE = "serve"
OUTAGES = {"join": {"group"}, "learn": {"log"}, "backfill": {"group", "log"}, "serve": {"snapshots"}}
"""The prefix of each role's events about an outage: `<outage>_unreachable`, then `<outage>_reachable`."""
REBUILT = {"attempt_dropped", "partition_resumed", "producer_renewed"}
LINES = 60


def test_every_role_waits_for_a_broker_says_so_once_and_goes_on(own_broker: Broker, make_own_site: MakeSite) -> None:
    """The joiner's session ends meanwhile, and a publication and appended records are under way when the broker is
    killed: nothing is lost, no join is built again, and the digest is the oracle's.
    """
    inputs = scenario("everything", 2)
    site = make_own_site(inputs)
    ports = {name: free_port() for name in (*AWAY, SERVE)}
    with ExitStack() as stack:
        roles = _start(stack, site, ports)
        site.produce(0, 0.5)
        wait_until(lambda: all(_lack(name, port) == "" for name, port in ports.items()), "every role is ready")
        joined = [role for name, role in roles.items() if "the joiner cannot reach its group" in AWAY.get(name, ())]
        wait_until(lambda: all(_begun(role) >= site.partitions for role in joined), "every partition is being joined")
        lines = {name: len(role.log.splitlines()) for name, role in roles.items()}
        site.produce(0.5, 0.6)
        own_broker.nodes[0].kill()
        wait_until(
            lambda: all(word in (_lack(name, ports[name]) or "") for name, words in AWAY.items() for word in words),
            "no role is ready but the server",
        )
        wait_until(lambda: said(roles["join"], "lost") > 0, "the joiner's session has ended")
        once = {name: [f"{outage}_unreachable" for outage in sorted(outages)] for name, outages in OUTAGES.items()}
        wait_until(lambda: {name: _told(role, name) for name, role in roles.items()} == once, "each has said it, once")
        wait_until(lambda: said(roles[SERVE], "version_stale") == 1, "the server says that its version is old")
        assert _lack(SERVE, ports[SERVE]) == "" and said(roles[SERVE], "not_ready") == 0
        assert all(role.exit_code is None for role in roles.values())
        own_broker.nodes[0].start()
        own_broker.wait_ready()
        site.produce(0.6, 1)
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: all(_lack(name, port) == "" for name, port in ports.items()), "every role is ready again")
        for name, role in roles.items():
            assert all(_ended(role, outage) for outage in OUTAGES[name])
            news = events(role)[-(len(role.log.splitlines()) - lines[name]) :]
            assert len(news) < LINES, news
            assert not REBUILT & {event["event"] for event in news}
        assert roles["backfill"].stop() == 128 + signal.SIGTERM
    assert_equal_to_oracle(site, site.scenario.expected())


def _start(stack: ExitStack, site: Site, ports: Mapping[str, int]) -> dict[str, RoleProcess]:
    def start(name: str, command: str, **changes: dict[str, object]) -> RoleProcess:
        telemetry = {"http_port": ports[name], "http_host": "127.0.0.1"}
        return stack.enter_context(process_of(site, command, **{"telemetry": telemetry, **changes}))

    serve = {"port": ports["serve"], "host": "127.0.0.1", "drain": "0s"}
    other = {"state_dir": str(site.folder / "backfill")}
    return {
        "join": start("join", "join"),
        "learn": start("learn", "learn"),
        "serve": start("serve", "serve", telemetry={}, serve=serve, scorer={"stale_after": "5s"}),
        "backfill": start("backfill", f"backfill --as {site.model}-again --from earliest", learner=other),
    }


def _begun(role: RoleProcess) -> int:
    """How many partitions its joiner has begun."""
    return said(role, "partition_begun") + said(role, "partition_resumed")


def _told(role: RoleProcess, name: str) -> list[str]:
    """Every word on the outages of a role, in order of their names."""
    of_it = {f"{outage}_{word}" for outage in OUTAGES[name] for word in ("unreachable", "reachable")}
    return sorted(event["event"] for event in events(role) if event["event"] in of_it)


def _ended(role: RoleProcess, outage: str) -> bool:
    """Whether each outage was said once, and once that it was over: a busy broker may be away a second time."""
    words = [f"{outage}_unreachable", f"{outage}_reachable"]
    found = [event["event"] for event in events(role) if event["event"] in words]
    return bool(found) and found == words * (len(found) // 2)


def _lack(name: str, port: int) -> str | None:
    return why_not_ready(port, "/v2/health/ready" if name == SERVE else "/readyz")


def test_a_start_that_waits_for_a_broker_ends_promptly_when_told_to(
    own_broker: Broker, make_own_site: MakeSite
) -> None:
    """The broker hangs: it takes connections and answers nothing. Nothing was begun, so the exit code is 0; nobody
    waits for the time-out of a question to the broker.
    """
    site = make_own_site(scenario("plain", 1))
    own_broker.nodes[0].signal(signal.SIGSTOP)
    try:
        with ExitStack() as stack:
            roles = [stack.enter_context(process_of(site, command)) for command in ("join", "learn")]
            wait_until(lambda: all(_listens(role) for role in roles), "the processes listen to signals")
            assert [role.stop() for role in roles] == [0, 0]
            assert [said(role, "stopped_while_starting") for role in roles] == [1, 1]
    finally:
        own_broker.nodes[0].signal(signal.SIGCONT)


def test_a_stop_under_a_broker_that_hangs_ends_in_its_time_and_loses_nothing(
    own_broker: Broker, make_own_site: MakeSite
) -> None:
    """Records and a publication are under way when the broker stops answering: the process gives up after
    `shutdown_timeout`, says so, and the next one goes on to the oracle's log and model.
    """
    site = make_own_site(scenario("everything", 2))
    broker = own_broker.nodes[0]
    with process_of(site, "run", shutdown_timeout="2s") as roles:
        site.produce(0, 0.4)
        wait_until(lambda: site.marks_seen() > 10, "the log grows")
        roles.pause()
        site.produce(0.4, 0.7)
        broker.signal(signal.SIGSTOP)
        try:
            roles.resume()
            assert roles.stop() == 128 + signal.SIGTERM  # sooner than any question to a broker is given up
        finally:
            broker.signal(signal.SIGCONT)
        assert said(roles, "shutdown_timeout_exceeded") == 1
    with process_of(site, "run"):
        site.produce(0.7, 1)
        wait_until(site.closed, "every partition closed")
    assert_equal_to_oracle(site, site.scenario.expected())


def _listens(role: RoleProcess) -> bool:
    """Whether the process has taken over SIGTERM."""
    lines = Path(f"/proc/{role.pid}/status").read_text().splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)))
