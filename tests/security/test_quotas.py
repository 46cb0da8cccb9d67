"""Quotas of bytes: a role that meets one slows down, and loses nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from tests.e2e.checks import assert_balance, assert_log_equals, assert_model_equals, expected_fold
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import scenario
from tests.security.broker import LIMITED, QUOTA_WINDOW_S, Secured
from tests.security.roles import Roles, allow_role

BYTES_PER_S = 20_000
"""So little that what each role has to read takes seconds, on any machine."""
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
    with probing(secured, site) as probe, running(roles.joiner()):
        wait_until(probe.was_held_back, "the joiner is held back")
        wait_until(site.closed, "every tick closed")
    learner = roles.learner()
    with probing(secured, site) as probe, running(learner):
        wait_until(probe.was_held_back, "the learner is held back")
        wait_until(lambda: site.folded(learner), "every tick folded")
    with probing(secured, site) as probe, ExitStack() as stack:
        scorers = [stack.enter_context(roles.scorer()) for _ in range(SCORERS)]
        wait_until(probe.was_held_back, "the scorers are held back")
        wait_until(lambda: all(scorer.version == learner.tick for scorer in scorers), "the last version is served")
        assert all(scorer.ready for scorer in scorers)
    joined = site.scenario.expected()
    assert_log_equals(site, joined)
    assert_balance(site)
    assert_model_equals(learner.learner, expected_fold(joined, site.scenario.settings))


class Probe:
    """A consumer of the limited user that reads nothing: while the brokers hold the user back, it hears of it."""

    def __init__(self, secured: Secured, site: Site) -> None:
        self._held_back = False
        self._quiet_since_s = math.inf
        options = {**secured.options("PLAIN", LIMITED), "group.id": site.config.group, "enable.partition.eof": True}
        self._consumer = Consumer({**options, "throttle_cb": self._hear})
        self._consumer.assign([TopicPartition(site.config.snapshots_topic, 0, OFFSET_END)])

    def _hear(self, event: object) -> None:
        if event.throttle_time > 0:  # type: ignore[attr-defined]
            self._held_back = True
            self._quiet_since_s = time.monotonic()

    def was_held_back(self) -> bool:
        """Whether it has heard of it."""
        self._listen()
        return self._held_back

    def is_quiet(self) -> bool:
        """Whether it is connected, and what was read and sent before counts no more."""
        self._listen()
        quiet = time.monotonic() - self._quiet_since_s > QUOTA_WINDOW_S + 1
        self._held_back = self._held_back and not quiet
        return quiet

    def _listen(self) -> None:
        message = self._consumer.poll(0)
        error = message.error() if message is not None else None
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._quiet_since_s = min(self._quiet_since_s, time.monotonic())

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()


@contextmanager
def probing(secured: Secured, site: Site) -> Iterator[Probe]:
    """A probe that is connected before the block begins, and hears of nothing from before it."""
    probe = Probe(secured, site)
    try:
        wait_until(probe.is_quiet, "the probe has reached the brokers, and nobody is held back")
        yield probe
    finally:
        probe.close()
