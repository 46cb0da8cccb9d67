"""Commands that cannot do their work: how soon they say so, what they say, and their exit codes."""

from __future__ import annotations

import re
import socket
from datetime import datetime, timezone

import pytest

from stream_learner import errors
from stream_learner.adapters.kafka import TopicPlan
from stream_learner.core.log.header import Kind, RecordHeader, seal
from tests.cli_e2e.commands import answer_of, answers_of, run, run_side_by_side
from tests.cli_e2e.conftest import Learned, MakeWorld
from tests.cli_e2e.world import World, free_port
from tests.kafka_broker.broker import delete_topics


def set_of(**settings: object) -> tuple[str, ...]:
    """Options that set settings, `__` for a dot."""
    return tuple(text for name, value in settings.items() for text in ("--set", f"{name.replace('__', '.')}={value}"))


def test_a_configuration_that_cannot_work_is_refused_before_a_broker_is_asked(make_world: MakeWorld) -> None:
    """Every finding on stderr, with the nearest setting; nobody connects to the address of the brokers."""
    file = make_world().file
    with socket.create_server(("127.0.0.1", 0)) as broker:
        address = f"127.0.0.1:{broker.getsockname()[1]}"
        wrong = ("-c", file, *set_of(kafka__bootstrap__servers=address, join__windw="10s"))
        commands = (("config", "check"), ("topics", "ensure"), ("score",))
        refused = [run("run", *wrong), *answers_of(*((*name, *wrong) for name in commands))]
        broker.setblocking(False)
        with pytest.raises(BlockingIOError):
            broker.accept()
    fine = answer_of("config", "check", "-c", file)
    assert (fine.code, fine.out) == (0, "ok\n")
    assert not (file.parent / "state").exists()
    for ended in refused:
        assert ended.code == errors.ConfigError.exit_code
        assert "did you mean join.window?" in ended.err


def test_topics_that_are_missing_are_named(make_world: MakeWorld) -> None:
    """Each role names the topics that it needs and how they are made; nothing is made on the way."""
    world = make_world()
    needed = (world.topics[:3], [world.config.examples_topic], [world.config.snapshots_topic])
    roles = run_side_by_side(("join", "-c", world.file), ("learn", "-c", world.file))
    for ended, topics in zip((*roles, answer_of("score", "-c", world.file)), needed, strict=True):
        assert ended.code == errors.TopicMissing.exit_code
        assert all(topic in ended.error["message"] for topic in topics)
        assert "topics ensure" in ended.error["action"]
    assert world.existing() == set()
    assert not (world.folder / "state").exists()


def test_partition_counts_that_differ_are_named(make_world: MakeWorld) -> None:
    """Inputs and training log of different counts stop the joiner; shards and snapshots, the learner."""
    world = make_world()
    c = world.config
    counts = {world.impressions: 2, world.clicks: 2, c.examples_topic: 3, c.dead_letters_topic: 1, c.snapshots_topic: 4}
    world.admin.create([TopicPlan(name, partitions) for name, partitions in counts.items()])
    join, learn = run_side_by_side(("join", "-c", world.file), ("learn", "-c", world.file))
    assert join.code == learn.code == errors.PartitionCountsDiffer.exit_code
    assert f"{c.examples_topic} has 3" in join.error["message"]
    assert f"{c.snapshots_topic} has 4 partitions, snapshots.shards is 2" in learn.error["message"]


@pytest.fixture(scope="module")
def foreign(make_world: MakeWorld) -> World:
    """A model whose training log begins with a mark that says nothing, its snapshots with what somebody else wrote."""
    world = make_world()
    c = world.config
    own = (c.examples_topic, c.dead_letters_topic, c.snapshots_topic, c.checkpoints_topic)
    names = (world.impressions, world.clicks, *own)
    world.admin.create([TopicPlan(name, 2) for name in names])
    mark = seal(RecordHeader(Kind.MARK, 0, 0, 0, 5, 0, version=2), b"hello")
    for topic, value in ((c.examples_topic, mark), (c.snapshots_topic, b"hello")):
        world.append(topic, 0, (b"version", value))
    return world


def test_topics_of_somebody_else_are_not_touched(foreign: World) -> None:
    """What cannot be used stops every role and every look, with its place; `score` says it is not ready."""
    c, file = foreign.config, ("-c", foreign.file, *set_of(scorer__ready_timeout="1s"))
    apart = set_of(learner__publish="false", learner__state_dir=foreign.folder / "apart")
    roles = run_side_by_side(("join", *file), ("learn", *apart, *file), ("learn", *file))
    *looks, score, empty = answers_of(
        ("inspect", "snapshot", *file),
        ("inspect", "tick", "0", "-p", "0", *file),
        ("score", *file),
        ("inspect", "tick", "0", "-p", "1", *file),
    )
    topics = (c.examples_topic, c.examples_topic, c.snapshots_topic, c.snapshots_topic, c.examples_topic)
    for ended, topic in zip((*roles, *looks), topics, strict=True):
        assert ended.code == errors.DamagedLog.exit_code, ended
        assert f"{topic} partition 0 offset 0" in ended.error["message"]
    assert score.code == errors.NotReady.exit_code
    assert "not ready after 1 s" in score.error["message"]
    assert f"topic {c.snapshots_topic}, partition 0, offset 0" in score.error["message"]
    assert empty.code == errors.NotFound.exit_code


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("setting", "apart"),
    [
        ("learner.optimizer.alpha=0.5", errors.StateOfAnotherModel),
        ("snapshots.shards=4", errors.PartitionCountsDiffer),
    ],
)
def test_what_to_do_about_another_setting_of_the_model_works(
    setting: str, apart: type[errors.StreamLearnerError], learned: Learned
) -> None:
    """The state names what differs; another directory meets the snapshot topic, and is answered with the same way out;
    that way trains the model.
    """
    world, name = learned.world, f"{learned.world.model}-{len(setting)}"
    options = ("-c", world.file, "--set", setting)
    elsewhere = set_of(learner__state_dir=world.folder / name / "apart", learner__copies="false")
    refused = [run("learn", *options), run("learn", *options, *elsewhere)]
    assert [ended.code for ended in refused] == [errors.StateOfAnotherModel.exit_code, apart.exit_code]
    assert setting.partition("=")[0].rpartition(".")[2] in refused[0].error["message"]
    (action,) = {ended.error["action"] for ended in refused}
    found = re.search("`stream-learner (backfill --as NAME --from-log MODEL)`", action)
    assert found is not None and "set back" in action
    command = found[1].replace("NAME", name).replace("MODEL", world.model).split()
    until = datetime.fromtimestamp(world.next_ms / 1000 - 1, timezone.utc).isoformat()
    renamed = world.config.renamed(name)
    try:
        ended = run(*command, *options, "--until", until, "--json")
        assert ended.code == 0, ended.err
        assert ended.json["model"]["name"] == name
        assert ended.json["impressions"]["examples"] > 0
        assert ended.json["model"]["features"] > 0
    finally:
        topics = (renamed.snapshots_topic, renamed.checkpoints_topic)
        delete_topics(world.settings.bootstrap, set(world.admin.describe(topics)))


def test_a_port_in_use_is_named(learned: Learned) -> None:
    """Before a role begins."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("join", "-c", learned.world.file, *set_of(telemetry__http_port=port))
    assert ended.code == errors.PortInUse.exit_code
    assert f"port {port}" in ended.error["message"]
    assert "joiner_started" not in ended.err


@pytest.mark.thorough
def test_brokers_out_of_reach_are_said_once(make_world: MakeWorld) -> None:
    """A start without a broker, told not to wait for it, ends by itself and names the address that was asked."""
    address = f"127.0.0.1:{free_port()}"
    options = ("-c", make_world().file, *set_of(kafka__bootstrap__servers=address))
    roles = [(name, "--fail-without-brokers") for name in ("run", "serve")]
    names = (*roles, ("score",), ("topics", "ensure"), ("inspect", "snapshot"))
    for ended in run_side_by_side(*((*name, *options) for name in names)):
        assert ended.code == errors.BrokerUnreachable.exit_code
        assert address in ended.error["message"]
        assert "kafka.bootstrap.servers" in ended.error["action"]
        assert (ended.out, len(ended.events) <= 8) == ("", True)
