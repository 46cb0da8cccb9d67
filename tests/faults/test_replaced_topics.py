"""Topics that are deleted and made again, or trimmed, under roles that run: each stops, and names the topic."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from stream_learner.adapters.kafka import Admin, TopicInfo
from stream_learner.errors import InputsChanged, LogTrimmed, PartitionCountsDiffer, TopicMissing, TopicRecreated
from stream_learner.roles.learner.model import LearnedModel
from tests.e2e.processes import process_of
from tests.e2e.site import Running, Site, failure_of, running, wait_until
from tests.e2e.test_refusals import remake
from tests.e2e.variants import delete_before
from tests.faults.conftest import MakeSite
from tests.scenarios import scenario

JOINERS = ("impressions", "clicks", "examples", "dead_letters")
LEARNERS = ("examples_read", "snapshots")


def test_every_topic_that_is_made_anew_under_a_role_stops_it(make_site: MakeSite) -> None:
    """The four of a joiner, the two of a learner; it says that the topic is another one, or, if it looks in between,
    that it is gone. A scorer goes on serving, and reads the new topic. The new topics are left as they were made.
    """
    inputs = scenario("plain", 1)
    sites = {name: make_site(inputs, learner={"copies": False}) for name in (*JOINERS, *LEARNERS)}
    with ExitStack() as stack:
        roles = {name: sites[name].joiner() for name in JOINERS} | {name: sites[name].learner() for name in LEARNERS}
        them = {name: Running([role]) for name, role in roles.items()}
        for role in them.values():
            stack.callback(role.stop)
        for site in sites.values():
            site.produce()
        with running(*(sites[name].joiner() for name in LEARNERS)):
            wait_until(lambda: all(site.closed() for site in sites.values()), "every partition closed")
        scorer = stack.enter_context(sites["snapshots"].scorer())
        wait_until(lambda: scorer.ready, "the scorer is ready")
        wait_until(lambda: not any(role.why_not_ready for role in roles.values()), "every role does its part")
        topics = {name: topic_of(site, name) for name, site in sites.items()}
        for name, site in sites.items():
            remake(site, topics[name], site.config.snapshots.shards if name == "snapshots" else 1)
        wait_until(lambda: all(role.error is not None for role in them.values()), "every role has stopped")
        wait_until(lambda: "no version record was read" in scorer.trouble, "the scorer reads the new topic")
        assert scorer.ready
        errors: dict[str, Any] = {name: role.error for name, role in them.items()}
        for name, error in errors.items():
            assert isinstance(error, (TopicRecreated, TopicMissing)), (name, error)
            assert topics[name] in str(error) and error.action
        for name, site in sites.items():
            assert site.ends(topics[name], 1) == [0]


def test_a_log_that_is_made_anew_while_a_learner_starts_stops_it(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the load of its state and its first turn: its positions are those of the log before."""
    site = make_site(scenario("plain", 1), learner={"copies": False})
    begin = LearnedModel.begin

    def begin_late(fold: LearnedModel, admin: Admin) -> TopicInfo | None:
        remake(site, site.config.examples_topic, 1)
        return begin(fold, admin)

    monkeypatch.setattr(LearnedModel, "begin", begin_late)
    assert site.config.examples_topic in str(failure_of(site.learner(), TopicRecreated))


def test_partitions_that_are_added_under_a_joiner_stop_it(make_site: MakeSite) -> None:
    """Whether to one of its three topics or to all, and when it is started again: it says which topic had how many, or
    which counts differ, and what to do. Not one tick more is made.
    """
    grown = {name: (name,) for name in ("impressions", "clicks", "examples")}
    grown["inputs"] = ("impressions", "clicks")
    grown["all"] = ("impressions", "clicks", "examples")
    sites = {name: make_site(scenario("plain", 1)) for name in grown}
    with ExitStack() as stack:
        them = {name: Running([site.joiner()]) for name, site in sites.items()}
        for role in them.values():
            stack.callback(role.stop)
        for site in sites.values():
            site.produce(0, 0.5)
        wait_until(lambda: all(site.marks_seen() for site in sites.values()), "every log grows")
        for name, site in sites.items():
            for topic in grown[name]:
                add_partition(site, topic_of(site, topic))
        wait_until(lambda: all(role.error is not None for role in them.values()), "every role has stopped")
        for name, role in them.items():
            assert isinstance(role.error, PartitionCountsDiffer), (name, role.error)
            topics = [topic_of(sites[name], topic) for topic in grown[name]]
            assert any(f"{topic} while in use: it had 1, now it has 2" in str(role.error) for topic in topics)
            assert "begin-anew" in role.error.action and "backfill" in role.error.action
    for name, site in sites.items():
        seen = site.marks_seen()
        error = failure_of(site.joiner(), InputsChanged if name == "all" else PartitionCountsDiffer)
        assert error.action
        assert ("backfill" in error.action) == (name == "all")
        assert site.marks_seen() == seen


def add_partition(site: Site, topic: str) -> None:
    """Give a topic of one partition a second one."""
    for answer in site.plain_admin.create_partitions([NewPartitions(topic, 2)]).values():
        answer.result()


@pytest.mark.parametrize("side", ["impressions", "clicks"])
def test_input_that_retention_takes_from_a_running_joiner_stops_it(side: str, make_site: MakeSite) -> None:
    """It stands still while records come and go: it does not go on behind the gap, and accepts not one tick more."""
    site = make_site(scenario("everything", 1))
    topic = str(getattr(site, side))
    with process_of(site, "join") as joiner:
        site.produce(0, 0.3)
        wait_until(lambda: site.marks_seen() > 10, "the log grows")
        joiner.pause()
        for share in (0.3, 0.4, 0.5):  # what it asked for before it stood still, and what nobody has asked for
            site.produce(share, share + 0.1)
        delete_before(site, topic, 0, site.ends(topic, 1)[0])
        joiner.resume()
        assert joiner.wait_ended() == LogTrimmed.exit_code
        assert topic in joiner.log and "Traceback" not in joiner.log
    log_end, marks = site.ends(site.config.examples_topic, 1), site.marks_seen()
    error = failure_of(site.joiner(), LogTrimmed)
    assert topic in str(error)
    assert "backfill" in error.action and "lost" in error.action
    assert (site.ends(site.config.examples_topic, 1), site.marks_seen()) == (log_end, marks)


def topic_of(site: Site, name: str) -> str:
    """The topic that is replaced under a role."""
    config = site.config
    of_model = {
        "examples": config.examples_topic,
        "examples_read": config.examples_topic,
        "dead_letters": config.dead_letters_topic,
        "snapshots": config.snapshots_topic,
    }
    return of_model.get(name) or str(getattr(site, name))
