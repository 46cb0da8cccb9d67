"""Quotas of bytes: a role that meets one slows down, and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from tests.e2e.checks import assert_balance, assert_log_equals, assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import scenario
from tests.security.broker import LIMITED, Secured
from tests.security.roles import Roles, allow_role

BYTES_PER_S = 40_000
BYTES_PER_S_OF_SCORERS = 16_000
SCORERS = 2
PARTS = 40
"""In so many parts the input is sent: brokers never hand out a batch that is larger than a quota allows at once."""


def test_roles_keep_to_a_quota_and_lose_nothing(secured: Secured, make_site: MakeSite) -> None:
    """A joiner, then a learner, then several scorers at once are held back; log and model are the oracle's, and every
    scorer comes to the last version."""
    site = make_site(scenario("everything", 1))
    roles = Roles(site, lambda user: secured.options("PLAIN", LIMITED))
    for role in ("joiner", "learner", "scorer"):
        allow_role(secured, site.config, role, LIMITED)
    for part in range(PARTS):
        site.produce(part / PARTS, (part + 1) / PARTS)
    secured.limit(LIMITED, BYTES_PER_S)
    with held_back(secured, site), running(roles.joiner()):
        wait_until(site.closed, "every tick closed")
    learner = roles.learner()
    with held_back(secured, site), running(learner):
        wait_until(lambda: site.folded(learner), "every tick folded")
    secured.limit(LIMITED, BYTES_PER_S_OF_SCORERS)
    with held_back(secured, site), ExitStack() as stack:
        scorers = [stack.enter_context(roles.scorer()) for _ in range(SCORERS)]
        wait_until(lambda: all(scorer.version == learner.tick for scorer in scorers), "the last version is served")
        assert all(scorer.ready for scorer in scorers)
    joined = site.scenario.expected()
    assert_log_equals(site, joined)
    assert_balance(site)
    assert_model_equals(learner.learner, expected_fold(joined, site.scenario.settings))


@contextmanager
def held_back(secured: Secured, site: Site) -> Iterator[None]:
    """Within the block the brokers hold the user back: a consumer of its own hears of it, which reads nothing."""
    waits_s: list[float] = []
    options = {**secured.options("PLAIN", LIMITED), "group.id": site.config.group}
    probe = Consumer({**options, "throttle_cb": lambda event: waits_s.append(event.throttle_time)})
    probe.assign([TopicPartition(site.config.snapshots_topic, 0, OFFSET_END)])
    done = threading.Event()

    def listen() -> None:
        while not done.is_set():
            probe.poll(0.05)

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        yield
    finally:
        done.set()
        listening.join()
        probe.close()
    assert sum(waits_s) > 0
