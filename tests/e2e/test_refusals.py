"""What a role refuses on a real Kafka, and says so: topics, inputs, states and logs that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from structlog.testing import capture_logs

from stream_learner.core.events.feature_keys import NEWEST_RULE
from stream_learner.errors import (
    ConfigError,
    InputsChanged,
    LogTrimmed,
    PartitionCountsDiffer,
    StateInUse,
    StateOfAnotherModel,
    TopicMissing,
    TopicRecreated,
)
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.roles.common.last_publication import LastPublication, read_last_publication
from stream_learner.roles.learner.role import LearnerRole
from tests import waiting
from tests.e2e.checks import assert_balance, assert_log_equals
from tests.e2e.conftest import MakeSite
from tests.e2e.site import ANY_TIME, Site, failure_of, running, wait_until
from tests.e2e.training_log import LogReader
from tests.e2e.variants import delete_before
from tests.kafka_broker.broker import delete_topics
from tests.scenarios import scenario


@pytest.fixture
def joined(make_site: MakeSite) -> Site:
    """A site whose joiner has made some examples of the first half of the traffic and is gone."""
    site = make_site(scenario("plain", 2))
    site.produce(0, 0.5)
    with running(site.joiner()):
        wait_until(lambda: all(log.examples() for log in site.logs()), "examples in every partition")
    return site


@pytest.mark.parametrize("side", ["impressions", "clicks", "examples"])
def test_differing_partition_counts_are_refused(side: str, make_site: MakeSite) -> None:
    """Equal ids would not meet; the message has all three counts."""
    site = make_site(scenario("plain", 2))
    topic = {"examples": site.config.examples_topic}.get(side) or getattr(site, side)
    remake(site, topic, partitions=3)
    error = failure_of(site.joiner(), PartitionCountsDiffer)
    assert f"{topic} has 3" in str(error)


@pytest.mark.parametrize("side", ["impressions", "clicks", "examples", "dead_letters"])
def test_a_missing_topic_is_named_by_the_joiner(side: str, make_site: MakeSite) -> None:
    """Whichever of its four it is."""
    site = make_site(scenario("plain", 1))
    topic = getattr(site.config, f"{side}_topic", None) or getattr(site, side)
    delete_topics(site.settings.bootstrap, [topic])
    assert topic in str(failure_of(site.joiner(), TopicMissing))


@pytest.mark.parametrize("side", ["examples", "snapshots"])
def test_a_missing_topic_is_named_by_the_learner(side: str, make_site: MakeSite) -> None:
    """Its log, and where it publishes."""
    site = make_site(scenario("plain", 1))
    topic = getattr(site.config, f"{side}_topic")
    delete_topics(site.settings.bootstrap, [topic])
    assert topic in str(failure_of(site.learner(), TopicMissing))


@pytest.mark.parametrize(
    "change", [{"window": "20s"}, {"skew": "1s"}, {"tick": "2s"}, {"dedupe": "1s"}, {"keep_negatives": 0.5}]
)
def test_another_join_for_an_existing_log_is_refused(change: dict[str, object], joined: Site) -> None:
    """Every setting that decides which examples are made."""
    error = failure_of(joined.joiner(joined.changed(join=change)), InputsChanged)
    assert joined.config.examples_topic in str(error)


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("input.impressions", {"input": {"impressions": {"weight": "importance"}}}),
        ("input.clicks", {"input": {"clicks": {"value": "worth"}}}),
        ("features", {"features": {"max_features": 77}}),
        ("features", {"features": {"exclude": ["no_such_field"]}}),
    ],
)
def test_other_examples_for_an_existing_log_are_refused(
    section: str, changes: dict[str, dict[str, Any]], joined: Site
) -> None:
    """Settings of input and features decide the examples as those of the join do; the message names their section."""
    for side, fields in changes.get("input", {}).items():
        changes = {"input": {side: {**joined.tree["input"][side], **fields}}}
    error = failure_of(joined.joiner(joined.changed(**changes)), InputsChanged)
    assert f"{joined.config.examples_topic} partition" in str(error)
    assert f"other settings of {section}" in str(error)


def test_a_model_is_not_published_with_features_that_its_examples_do_not_have(joined: Site) -> None:
    """Nor after a restart, when no mark is folded any more. It says so once; it is published with its own."""
    other = joined.changed(features={"max_features": 77})

    def version() -> int:
        topic, shards = other.snapshots_topic, other.snapshots.shards
        return read_last_publication(joined.settings, joined.admin.offsets, topic, shards).latest

    def holds_back(learner: LearnerRole) -> None:
        with capture_logs() as logged, running(learner):
            wait_until(lambda: learner.tick == joined.last_tick(), "everything folded")
            wait_until(lambda: "made with other settings of features" in learner.why_not_ready, "it says so")
        (said,) = [event for event in logged if event["event"] == "features_differ"]
        assert f"{joined.config.examples_topic} partition 0, 1 " in said["reason"]
        assert version() == -1

    holds_back(joined.learner(other))
    holds_back(joined.learner(other))
    learner = joined.learner()
    with running(learner):
        wait_until(lambda: version() == joined.last_tick(), "a version")
        wait_until(lambda: learner.why_not_ready == "", "it is ready")


@pytest.mark.parametrize("side", ["impressions", "clicks"])
def test_an_input_topic_made_anew_is_refused(side: str, joined: Site) -> None:
    """Its offsets mean something else now, however many records it holds."""
    topic = getattr(joined, side)
    remake(joined, topic, joined.partitions)
    joined.produce()
    assert topic in str(failure_of(joined.joiner(), TopicRecreated))


def test_a_topic_made_anew_under_a_running_joiner_stops_it(joined: Site) -> None:
    """It says that, and not that an offset is gone; or that it is missing, if it asks in between. So does the next."""
    with pytest.raises((TopicRecreated, TopicMissing)) as caught, running(joined.joiner()):
        wait_until(lambda: joined.shared_by(1), "the joiner has its partitions")
        remake(joined, joined.clicks, joined.partitions)
        wait_until(lambda: False, "the joiner stops")
    assert joined.clicks in str(caught.value)
    error = failure_of(joined.joiner(), TopicRecreated)
    assert joined.clicks in str(error) and "a model of other topics has this name" in str(error)


def test_a_training_log_made_anew_under_a_running_learner_stops_it(joined: Site) -> None:
    """A running learner notices that its log was made anew, and stops."""
    learner = joined.learner()
    with pytest.raises((TopicRecreated, TopicMissing)) as caught, running(learner):
        wait_until(lambda: learner.tick >= 0, "something folded")
        remake(joined, joined.config.examples_topic, joined.partitions)
        wait_until(lambda: False, "the learner stops")
    assert joined.config.examples_topic in str(caught.value)


def test_a_training_log_made_anew_is_refused_by_the_learner(joined: Site) -> None:
    """The positions in the state directory are of another topic."""
    learner = joined.learner()
    with running(learner):
        wait_until(lambda: learner.learner.examples, "something learned")
    remake(joined, joined.config.examples_topic, joined.partitions)
    failure_of(joined.learner(), TopicRecreated)


def test_the_state_of_another_model_is_refused(joined: Site, make_site: MakeSite) -> None:
    """Of another name, or of another optimizer; the message says what differs."""
    learner = joined.learner()
    with running(learner):
        wait_until(lambda: learner.learner.examples, "something learned")
    other = joined.changed(learner={"optimizer": {"alpha": 0.5}}, snapshots={"interval": "1h"})
    assert "optimizer" in str(failure_of(joined.learner(other), StateOfAnotherModel))
    stranger = make_site(joined.scenario, learner={"state_dir": str(joined.config.state_dir)})
    assert joined.model in str(failure_of(stranger.learner(), StateOfAnotherModel))


def test_a_model_keeps_the_rule_of_its_keys(make_site: MakeSite) -> None:
    """What was made by an earlier rule is not gone on with by the newest: joiner and learner name the rule to set, and
    go on with it. Where none is set it is found: by the log, or by the model record where the features are others now.
    A model of rule 1 says nothing of it, as none did before there was another.
    """
    joined = make_site(scenario("plain", 2))
    assert with_key_rule(joined.config).features.key_rule == NEWEST_RULE
    old = joined.changed(features={"key_rule": 1})
    joined.produce(0, 0.5)
    with running(joined.joiner(old)):
        wait_until(lambda: all(log.marks for log in joined.logs()), "marks in every partition")
    assert with_key_rule(joined.config).features.key_rule == 1
    others = joined.changed(features={"exclude": ["hour"]})
    assert with_key_rule(others).features.key_rule == NEWEST_RULE

    def published() -> LastPublication:
        return read_last_publication(joined.settings, joined.admin.offsets, old.snapshots_topic, old.snapshots.shards)

    with running(joined.learner(old)):
        wait_until(lambda: published().is_whole, "a version")
    first = published()
    assert first.model is not None
    assert "key_rule" not in first.model.content["features"]
    error = failure_of(joined.learner(), ConfigError)
    assert "published with key rule 1, features.key_rule is 3" in str(error)
    error = failure_of(joined.joiner(), InputsChanged)
    assert "was made with features.key_rule 1" in str(error) and "Set features.key_rule to 1" in error.action
    assert with_key_rule(others).features.key_rule == 1
    explicit = joined.changed(features={"key_rule": 2})
    assert with_key_rule(explicit) is explicit
    found = with_key_rule(joined.config)
    with running(joined.joiner(found), joined.learner(found)):
        joined.produce(0.5, 1)
        wait_until(lambda: published().complete_up_to > first.complete_up_to, "the next version")


def test_a_state_directory_in_use_is_refused(joined: Site) -> None:
    """By a second learner, while the first goes on."""
    first = joined.learner()
    with running(first):
        wait_until(lambda: first.tick >= 0, "something folded")
        error = failure_of(joined.learner(), StateInUse)
        before = first.tick
        with running(joined.joiner()):
            joined.produce(0.5, 1)
            wait_until(lambda: first.tick > before, "the first goes on")
    assert str(joined.config.state_dir) in str(error)


def test_a_training_log_trimmed_away_stops_joiner_and_learner(joined: Site) -> None:
    """No role begins again by itself if marks are known to be gone."""
    delete_before(joined, joined.config.examples_topic, 0, joined.log(0).position)
    error = failure_of(joined.joiner(), LogTrimmed)
    assert f"{joined.config.examples_topic} partition 0" in str(error)
    assert "backfill" in error.action
    assert f"{joined.config.examples_topic} partition 0" in str(failure_of(joined.learner(), LogTrimmed))


def test_a_learner_whose_position_was_trimmed_stops(joined: Site) -> None:
    """A checkpoint from before the earliest record of a partition: ticks are missing."""
    learner = joined.learner()
    with running(learner):
        wait_until(lambda: learner.tick == joined.last_tick(), "everything folded")
    with running(joined.joiner()):
        joined.produce(0.5, 1)
        wait_until(joined.closed, "every partition closed")
    delete_before(joined, joined.config.examples_topic, 1, joined.log(1).position - 3)
    assert f"{joined.config.examples_topic} partition 1" in str(failure_of(joined.learner(), LogTrimmed))


def test_a_joiner_goes_on_in_a_log_whose_beginning_was_trimmed(joined: Site) -> None:
    """A resume point that is left is enough: every later tick is the oracle's."""
    with running(joined.joiner()):
        wait_until(lambda: any(len(resume_points(log)) > 1 for log in joined.logs()), "a second resume point")
    for log in joined.logs():
        offsets = resume_points(log)
        if len(offsets) > 1:
            delete_before(joined, joined.config.examples_topic, log.partition, offsets[-1])
    with running(joined.joiner()):
        joined.produce(0.5, 1)
        wait_until(joined.closed, "every partition closed")
    assert_log_equals(joined, joined.scenario.expected())
    assert_balance(joined)


def resume_points(log: LogReader) -> list[int]:
    """Offsets of the marks of a partition from which a joiner can go on."""
    return [tick.mark_offset for tick in log.ticks if tick.mark.resume is not None]


@pytest.mark.parametrize("side", ["impressions", "clicks"])
def test_input_that_a_resume_point_needs_and_that_is_gone_is_refused(side: str, joined: Site) -> None:
    """The ticks after it could not be made; the message names the input topic."""
    topic = getattr(joined, side)
    for partition in range(joined.partitions):
        end = joined.ends(topic, partition + 1)[partition]
        delete_before(joined, topic, partition, end)
    assert topic in str(failure_of(joined.joiner(), LogTrimmed))


def remake(site: Site, topic: str, partitions: int) -> None:
    """Delete a topic and make another one of the same name."""
    delete_topics(site.settings.bootstrap, [topic])

    def made() -> bool:
        try:
            site.plain_admin.create_topics([NewTopic(topic, partitions, 1, config=ANY_TIME)])[topic].result()
        except KafkaException:
            return False
        return True

    waiting.wait_until(made, f"{topic} is made anew")  # whatever the roles say meanwhile
    places = [(topic, partition) for partition in range(partitions)]
    wait_until(lambda: len(site.admin.offsets.high_watermarks_known(places)[0]) == partitions, "leaders")
