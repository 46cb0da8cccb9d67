"""Topics that are deleted and made again, or trimmed, under roles that run: each stops, and names the topic."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from stream_learner.errors import LogTrimmed, TopicMissing, TopicRecreated
from tests.e2e.processes import process_of
from tests.e2e.site import Running, Site, failure_of, running, wait_until
from tests.e2e.test_refusals import remake
from tests.e2e.variants import delete_before
from tests.faults.conftest import MakeSite
from tests.scenarios import scenario

JOINERS = ("impressions", "clicks", "examples", "dead_letters")
LEARNERS = ("examples_read", "snapshots")


def test_every_topic_that_is_made_anew_under_a_role_stops_it(make_site: MakeSite) -> None:
    """The four of a joiner, the two of a learner, the one of a scorer; it says that the topic is another one, or, if it
    looks in between, that it is gone. The new topic is left as it was made.
    """
    inputs = scenario("plain", 1)
    sites = {name: make_site(inputs, learner={"copies": False}) for name in (*JOINERS, *LEARNERS)}
    with ExitStack() as stack:
        them = {name: Running([sites[name].joiner()]) for name in JOINERS}
        them |= {name: Running([sites[name].learner()]) for name in LEARNERS}
        for role in them.values():
            stack.callback(role.stop)
        for site in sites.values():
            site.produce()
        with running(*(sites[name].joiner() for name in LEARNERS)):
            wait_until(lambda: all(site.closed() for site in sites.values()), "every partition closed")
        scorer = stack.enter_context(sites["snapshots"].scorer())
        wait_until(lambda: scorer.ready, "the scorer is ready")
        topics = {name: topic_of(site, name) for name, site in sites.items()}
        for name, site in sites.items():
            remake(site, topics[name], site.config.snapshots.shards if name == "snapshots" else 1)
        wait_until(lambda: all(role.error is not None for role in them.values()), "every role has stopped")
        wait_until(lambda: topics["snapshots"] in scorer.why_not_ready, "the scorer says so")
        errors: dict[str, Any] = {name: role.error for name, role in them.items()}
        for name, error in errors.items():
            assert isinstance(error, (TopicRecreated, TopicMissing)), (name, error)
            assert topics[name] in str(error) and error.action
        for name, site in sites.items():
            assert site.ends(topics[name], 1) == [0]


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
    assert topic in str(failure_of(site.joiner(), LogTrimmed))
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
