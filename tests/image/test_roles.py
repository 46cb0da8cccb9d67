"""Every command of the image, on a real Kafka: as a user nobody knows, without rights, on a read-only root."""

from __future__ import annotations

import json
import math
import re
import signal
import statistics
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from stream_learner.errors import SkipRefused
from stream_learner.traffic import Emitted
from tests.cli_e2e.commands import Ended
from tests.cli_e2e.scraped import answer, values_of
from tests.cli_e2e.world import PARTITIONS, World, free_port
from tests.image.builder import Image
from tests.image.conftest import Measured
from tests.image.container import Container, Containers
from tests.kafka_broker.broker import delete_topics
from tests.waiting import patience, wait_until

pytestmark = pytest.mark.thorough

IMPRESSIONS = 3_000
TOO_LATE = "shutdown_timeout_exceeded"
"""The words of a command that has not ended in time after a signal."""
EVENT = b'{"site":"site-1","slot":2}'
OWN_USER = "10001:10001"
USED_BELOW = {
    *("config", "topics", "join", "learn", "score", "inspect"),
    *("run", "serve", "demo", "rights", "doctor"),
    *("promote", "rollback", "alias", "pause", "resume", "pin", "unpin"),
    *("backfill", "diff", "evaluate", "audit", "compile", "begin-anew"),
    *("gate", "log", "rewind", "delete"),
}
"""The commands that the tests of this file run. Whoever adds one adds it here and below."""


@dataclass
class Trained:
    """A model that containers have made, and how they did."""

    world: World
    containers: Containers
    sent: Emitted
    joined: Ended
    learned: Ended
    ready_s: float


@pytest.fixture(scope="module")
def trained(image: Image, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """Topics made, traffic sent, joined and learned by two containers, which are then told to stop."""
    folder = tmp_path_factory.mktemp("image")
    topics = {"replication": 1, "control": f"control-{uuid.uuid4().hex[:10]}"}
    world = World(kafka, folder, learner={"state_dir": None}, topics=topics)
    world.file.chmod(0o644)
    containers = Containers(image, folder, config=world.file)
    try:
        yield _train(world, containers)
    finally:
        known = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics
        delete_topics(kafka, [name for name in known if world.model in name or name == topics["control"]])


def _train(world: World, containers: Containers) -> Trained:
    ensured = containers.run("topics", "ensure", "--partitions", str(PARTITIONS), "--json")
    assert ensured.code == 0, ensured.err
    sent = world.produce(IMPRESSIONS)
    ports = free_port(), free_port()
    listening = ["--set", f"telemetry.http_port={ports[0]}"], ["--set", f"telemetry.http_port={ports[1]}"]
    with containers.started("join", *listening[0]) as join, containers.started("learn", *listening[1]) as learn:
        join.wait_for("joiner_started")
        _wait_for_status(join, ports[0], "/readyz", 200)
        ready_s = time.time() - join.began
        learn.wait_for("learner_started")
        _wait_until_learned(ports, sent)
        joined, learned = join.stop(), learn.stop()
    return Trained(world, containers, sent, joined, learned, ready_s)


def _wait_until_learned(ports: tuple[int, int], sent: Emitted) -> None:
    def examples() -> list[float]:
        joiner, learner = (values_of(answer(port, "/metrics")[1]) for port in ports)
        return [joiner.get(("joiner_impressions_total", "example"), 0), learner.get(("learner_examples_total", ""), -1)]

    wait_until(lambda: examples() == [sent.impressions] * 2, lambda: f"{sent} sent, but {examples()}", look_s=0.1)


def _wait_for_status(container: Container, port: int, path: str, status: int) -> None:
    found: list[tuple[int, str]] = []

    def answered() -> bool:
        assert container.process.poll() is None, container.err
        with suppress(OSError):
            found[:] = [answer(port, path)]
        return bool(found) and found[0][0] == status

    wait_until(answered, lambda: f"{status} from {path}, but {found}")


def _event(ended: Ended, name: str) -> dict[str, Any]:
    return next(event for event in ended.events if event["event"] == name)


def test_every_command_is_run_by_a_test_of_this_file(containers: Containers) -> None:
    """A new command that nobody has tried in a container fails here."""
    page = containers.run("--help").out
    listed = set(re.findall(r"^  ([a-z]\S*) ", page.partition("Begin here:")[2], re.MULTILINE))
    assert listed >= {"join", "learn", "score"}
    assert listed - USED_BELOW == set()


def test_it_starts_from_nothing(image: Image, trained: Trained, measured: Measured) -> None:
    """To `--version`, without another word, and to a joiner that is ready; how long both take is in the summary."""
    containers = Containers(image, trained.world.folder / "quick")
    runs = [containers.run("--version") for _ in range(5)]
    assert {(ended.code, ended.out, ended.err) for ended in runs} == {(0, "stream-learner 0.1.0\n", "")}
    version_s = statistics.median(ended.seconds for ended in runs)
    measured(f"start: {version_s:.2f} s to --version, {trained.ready_s:.2f} s until a joiner is ready")


def test_every_kernel_is_in_the_image(image: Image, containers: Containers, measured: Measured) -> None:
    """All kernels are loaded from the read-only cache, none is compiled, whatever processor this is: for the one that
    the image names, and for the one before it.
    """
    named = image.environment["NUMBA_CPU_NAME"]
    for processor in (named, named.replace("v3", "v2")):
        ended = containers.run("compile", "--json", env={"NUMBA_CPU_NAME": processor})
        assert (ended.code, ended.err) == (0, "")
        done = ended.json
        assert done["compiled"] == 0 and done["parts"] > 30
        measured(f"kernels for {processor}: all loaded, none compiled, {done['seconds']} s for all optimizers")


def test_a_kernel_that_is_not_in_the_image_is_compiled_and_said(containers: Containers) -> None:
    """With another processor's name the cache does not serve: the program works, and says so in the log. The other
    tests would see that in the log of a role. `compile` itself fails: it could keep nothing.
    """
    ended = containers.run("compile", "--role", "learner", env={"NUMBA_CPU_NAME": "generic"})
    assert ended.code == 10
    said = [event["event"] for event in ended.events]
    assert said == ["compiling_kernels", "kernels_cannot_be_kept", "stopped"]


def test_nobody_can_write_but_to_the_state_and_to_tmp(containers: Containers) -> None:
    """The process has number 1, an unknown user, no rights; its root is read-only."""
    script = (
        "import os, pathlib, re\n"
        "def writable(folder):\n"
        "    try: (pathlib.Path(folder) / 'x').touch()\n"
        "    except OSError: return False\n"
        "    return True\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(os.getpid(), os.getuid(), os.getgid(), os.getgroups(), *re.findall(r'CapEff:\\s0*(\\S)', status))\n"
        "folders = ['.', '/tmp', '/dev/shm', '/', '/etc', '/var/lib', '/opt/stream-learner/kernels', '/root']\n"
        "print([f for f in folders if writable(f)])"
    )
    ended = containers.run("-c", script, program="python")
    assert ended.out.splitlines() == ["1 12345 0 [] 0", "['.', '/tmp', '/dev/shm']"], ended.err


def test_joiner_and_learner_keep_everything_when_told_to_stop(trained: Trained, measured: Measured) -> None:
    """SIGTERM to the first process: both end by themselves, in time, with code 0, and what was folded is in a
    checkpoint. The next learner begins there.
    """
    for ended in (trained.joined, trained.learned):
        assert ended.code == 0 and TOO_LATE not in ended.err, ended.err
    measured(f"stop: joiner {trained.joined.seconds:.2f} s, learner {trained.learned.seconds:.2f} s")
    stopped = _event(trained.learned, "learner_stopped")
    assert stopped["tick"] > 0
    with trained.containers.started("learn") as again:
        started = again.wait_for("learner_started")
        assert (started["tick"], started["digest"]) == (stopped["tick"], stopped["digest"])
        assert again.stop().code == 0


def test_it_runs_as_the_user_it_names(image: Image, trained: Trained, tmp_path: Path) -> None:
    """A new volume belongs to the image's user; joiner and learner in one process make their state there."""
    containers = Containers(image, tmp_path, user=OWN_USER, config=trained.world.file)
    with containers.started("run", "--set", "learner.publish=false") as run:
        run.wait_for("learner_started")
        run.wait_for("checkpoint")
        ended = run.stop()
    assert ended.code == 0
    owners = {path.stat().st_uid for path in containers.state.rglob("*")}
    assert owners == {10001}


def test_a_signal_during_the_start_is_not_lost(trained: Trained) -> None:
    """The kernel keeps from a first process every signal that it has no handler for. Told to stop while it loads, or
    while it waits for input, the program ends at once, and is not killed when its time is over.
    """
    with trained.containers.started("join") as join:
        _wait_for_handler(join, signal.SIGTERM)
        assert "joiner_started" not in join.err
        ended = join.stop()
        assert ended.code in (0, 143) and TOO_LATE not in ended.err, ended.err
    with trained.containers.started("score", piped=True) as score:
        stdin, stdout = score.process.stdin, score.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(EVENT + b"\n")
        stdin.flush()
        assert "p" in json.loads(stdout.readline())
        ended = score.stop()
        assert ended.code in (0, 143) and TOO_LATE not in ended.err, ended.err


def _wait_for_handler(container: Container, number: signal.Signals) -> None:
    """Wait until the first process is the program, and listens to a signal."""
    status = Path(f"/proc/{container.first}/status")

    def listens() -> bool:
        name, caught = re.findall(r"^(?:Name|SigCgt):\s*(\S+)", status.read_text(), re.MULTILINE)
        return name.startswith(("stream-learner", "python")) and bool(int(caught, 16) >> (number - 1) & 1)

    wait_until(listens, f"it listens to {number.name}", look_s=0.002)


def test_the_commands_that_only_look(trained: Trained) -> None:
    """The configuration is found where the image says it is; the model can be inspected, its rights printed."""
    run = trained.containers.run
    checked, shown = run("config", "check"), run("config", "show")
    assert checked.code == shown.code == 0
    assert trained.world.model in shown.out
    snapshot = run("inspect", "snapshot", "--json")
    assert snapshot.code == 0 and snapshot.json["version"] == _event(trained.learned, "learner_stopped")["tick"]
    rights = run("rights", "--role", "joiner")
    assert rights.code == 0 and trained.world.impressions in rights.out
    looked = run("doctor", "--json")
    assert [topic["topic"] for topic in looked.json["topics"]] == [trained.world.impressions, trained.world.clicks]
    anew = run("begin-anew", "--json")
    assert anew.code == 0 and len(anew.json["partitions"]) == PARTITIONS
    there = run("delete", "--json")
    assert there.code == 0 and {"topic", "consumer group"} <= {row["kind"] for row in there.json["found"]}


def test_what_guards_the_model_answers(trained: Trained) -> None:
    """No decision was made, the kept checkpoints are listed, and no reader stops at the first record of the log."""
    run = trained.containers.run
    status, kept = run("gate", "status", "--json"), run("rewind", "--list", "--json")
    assert status.code == kept.code == 0 and status.json["decisions"] == [] and "[" in kept.out
    refused = run("log", "skip", "0", "--partition", "0", "--reason", "a test", "--dry-run")
    assert refused.code == SkipRefused.exit_code, refused.err


def test_an_evaluation_reads_the_training_log(trained: Trained) -> None:
    """As the user of the image, who can write nothing there: the configuration's learner over all that was joined."""
    ended = trained.containers.run("evaluate", "--log", "--json")
    assert ended.code == 0, ended.err
    (row,) = json.loads(ended.out)
    assert 0 < row["examples"] <= trained.sent.impressions and row["log_loss"] < math.log(2)


def test_predictions_over_http_are_those_of_the_library(trained: Trained) -> None:
    """`score` and two worker processes of `serve` give the same number; SIGTERM ends all three processes."""
    with trained.containers.started("score", piped=True) as score:
        out, _ = score.process.communicate(EVENT + b"\n", patience())
    scored = json.loads(out)
    port, health = free_port(), free_port()
    options = (f"serve.port={port}", "serve.workers=2", "serve.drain=100ms", f"telemetry.http_port={health}")
    with trained.containers.started("serve", *(word for option in options for word in ("--set", option))) as serve:
        _wait_for_status(serve, health, "/readyz", 200)
        assert _predict(port, trained.world.model) == (scored["p"], str(scored["version"]))
        inside = _processes_below(serve.first)
        ended = serve.stop()
    assert len(inside) >= 3
    assert ended.code in (0, 143) and TOO_LATE not in ended.err, ended.err
    assert not [pid for pid in inside if Path(f"/proc/{pid}").exists()]


def _predict(port: int, model: str) -> tuple[float, str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models/{model}:predict",
        json.dumps({"instances": [json.loads(EVENT)]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=patience(10.0)) as found:
        answered = json.load(found)
    return answered["predictions"][0], answered["model_version"]


def _processes_below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in _processes_below(int(child)))]


def test_aliases_pins_and_pauses(trained: Trained) -> None:
    """A user without a name can change an alias."""
    model, run = trained.world.model, trained.containers.run
    commands = (
        ("promote", model, "--alias", "live", "--force", "--json"),
        ("promote", model, "--alias", "other", "--force", "--json"),
        ("pin", "live", "--json"),
        ("unpin", "live", "--json"),
        ("pause", "--json"),
        ("resume", "--json"),
    )
    for command in commands:
        ended = run(*command)
        assert ended.code == 0, (command, ended.err)
    listed = run("alias", "list", "--json")
    assert listed.code == 0 and model in listed.out and "live" in listed.out
    nowhere = run("rollback", "--alias", "live", "--json")
    assert nowhere.code not in (0, 1) and nowhere.error["exit_code"] == nowhere.code


def test_an_audit_with_replay_finds_nothing(trained: Trained) -> None:
    """It makes every example again and folds the log again, with the kernels of the image."""
    ended = trained.containers.run("audit", "--replay", "--json")
    assert ended.code == 0, ended.out + ended.err
    assert ended.json["sound"] is True


def test_a_demo_of_a_few_seconds(containers: Containers) -> None:
    """The whole loop without any broker, state or configuration."""
    ended = containers.run("demo", "--duration", "4", "--window", "1s", "--rate", "300", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["impressions"]["read"] > 0


def test_a_backfill_makes_the_same_model(trained: Trained) -> None:
    """With a second joiner process inside the container, which is gone afterwards. `diff` finds no difference."""
    model = trained.world.model
    name = f"{model}-again"
    until = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    command = ("backfill", "--as", name, "--from", "earliest", "--until", until, "--joiners", "2", "--json")
    ended = trained.containers.run(*command)
    assert ended.code == 0, ended.err
    assert ended.json["impressions"]["examples"] == trained.sent.impressions
    assert ended.json["model"]["name"] == name
    compared = trained.containers.run("diff", model, name, "--json")
    assert compared.code == 0, compared.out + compared.err
