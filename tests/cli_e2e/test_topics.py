"""`topics ensure`: what it makes, what it shows, and what it leaves alone."""

from __future__ import annotations

from stream_learner import errors
from stream_learner.adapters.kafka import TopicPlan
from tests.cli_e2e.commands import answer_of, answers_of
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.world import World


def ensure(world: World, *options: str) -> tuple[str, ...]:
    """The command line."""
    return ("topics", "ensure", "-c", str(world.file), *options)


def test_missing_inputs_are_named_and_nothing_is_made(make_world: MakeWorld) -> None:
    """Without --partitions the input topics must exist; the message says how to make them. --dry-run only shows."""
    world = make_world()
    refused, shown = answers_of(ensure(world), ensure(world, "--partitions", "2", "--dry-run", "--json", "--apply"))
    assert refused.code == errors.TopicMissing.exit_code
    assert world.impressions in refused.error["message"] and world.clicks in refused.error["message"]
    assert "--partitions N" in refused.error["action"]
    assert shown.code == errors.TopicsDiffer.exit_code
    assert {row["topic"] for row in shown.json} == set(world.topics)
    assert not any(row["done"] for row in shown.json)
    assert world.config.snapshots_topic in shown.error["message"]
    assert world.existing() == set()


def test_topics_are_made_once_and_changed_only_when_told(make_world: MakeWorld) -> None:
    """A second run finds nothing to do; a setting that differs is shown and kept, until --apply. More than is asked for
    is no failure: it is shown, and kept with --apply too."""
    world = make_world()
    made = answer_of(*ensure(world, "--partitions", "2"))
    assert made.code == 0 and made.err == ""
    assert all(topic in made.out for topic in world.topics) and "made" in made.out
    changed = ("--set", "topics.retention=14d")
    again, differs, dry = answers_of(
        ensure(world, "--json"), ensure(world, *changed), ensure(world, *changed, "--apply", "--dry-run")
    )
    assert (again.code, again.json) == (0, [])
    for shown in (differs, dry):
        assert shown.code == errors.TopicsDiffer.exit_code
        assert "retention.ms" in shown.out and "1209600000" in shown.out and "604800000" in shown.out
        assert "--apply" in shown.error["action"]
    log = world.config.examples_topic
    assert world.admin.describe([log], with_configs=True)[log].configs["retention.ms"] == "604800000"
    applied = answer_of(*ensure(world, *changed, "--apply", "--json"))
    assert applied.code == 0
    (row,) = applied.json
    assert (row["topic"], row["setting"], row["should_be"], row["done"]) == (log, "retention.ms", "1209600000", True)
    shorter = ("--set", "topics.retention=2h", "--json")
    for shown in answers_of(ensure(world, *shorter), ensure(world, *shorter, "--apply")):
        (row,) = shown.json
        assert (shown.code, row["setting"], row["should_be"]) == (0, "retention.ms", "7200000")
        assert row["is"] == "1209600000" and row["enough"] and not row["done"]
    found = world.admin.describe(world.topics, with_configs=True)
    assert found[log].configs["retention.ms"] == "1209600000"
    assert found[log].configs["message.timestamp.type"] == "LogAppendTime"
    assert found[world.config.snapshots_topic].configs["cleanup.policy"] == "compact"
    control = world.config.control_topic
    assert found[control].configs["cleanup.policy"] == "compact"
    counts = {name: info.partitions for name, info in found.items()}
    assert counts == {**dict.fromkeys(world.topics, 2), control: 1}
    other = make_world(topics={"control": control, "min_insync_replicas": 1})
    assert answer_of(*ensure(other, "--partitions", "2", "--json")).code == 0
    assert world.admin.describe([control], with_configs=True)[control].configs == found[control].configs


def test_inputs_that_do_not_fit_are_refused_before_anything_is_made(make_world: MakeWorld) -> None:
    """Counts that differ, and a --partitions that is not what a topic has, stop with the counts named."""
    uneven, half = make_world(), make_world()
    uneven.admin.create([TopicPlan(uneven.impressions, 2), TopicPlan(uneven.clicks, 3), TopicPlan(half.clicks, 3)])
    apart, unlike = answers_of(ensure(uneven), ensure(half, "--partitions", "2"))
    assert apart.code == unlike.code == errors.PartitionCountsDiffer.exit_code
    assert f"{uneven.impressions} has 2, {uneven.clicks} has 3" in apart.error["message"]
    assert f"--partitions is 2, {half.clicks} has 3" in unlike.error["message"]
    assert uneven.existing() == {uneven.impressions, uneven.clicks}
    assert half.existing() == {half.clicks}
    assert answer_of(*ensure(half, "--partitions", "3")).code == 0
    assert half.existing() == set(half.topics)
