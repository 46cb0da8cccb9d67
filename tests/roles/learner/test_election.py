"""Whether a learner leads, by what its lease says: the races of the real lease are in `tests/e2e/test_standby.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from stream_learner.adapters.kafka import KafkaSettings, Lease
from stream_learner.config import Config
from stream_learner.errors import Fenced
from stream_learner.roles.learner.election import Election


@dataclass
class Says:
    """In the place of a lease: what the group last said, and how long this process had slept when the lease ended."""

    held: bool = False
    elsewhere: bool = False
    silent_s: float = 0.0

    def poll(self) -> None:
        """Nothing new."""


def election(settings: KafkaSettings, says: Says, *, standby: bool) -> Election:
    """Of a learner that has asked for its lease."""
    tree: dict[str, Any] = {
        "model": "m",
        "kafka": {"bootstrap.servers": settings.bootstrap},
        "input": {"impressions": {"topic": "i"}, "clicks": {"topic": "c"}},
    }
    one = Election(Config.model_validate(tree), settings, standby=standby)
    one._lease = cast(Lease, says)
    return one


def test_a_standby_leads_while_it_holds_the_lease(kafka_settings: KafkaSettings) -> None:
    """Lost while it was awake, as where no broker answers, it follows again, whoever has the lease now."""
    says = Says()
    one = election(kafka_settings, says, standby=True)
    assert not one.poll(caught_up=True)
    says.held = True
    assert one.poll(caught_up=True)
    says.held = False
    assert not one.poll(caught_up=True)
    says.elsewhere = True
    assert not one.poll(caught_up=True)
    says.held, says.elsewhere = True, False
    assert one.poll(caught_up=True)


def test_a_standby_that_wakes_and_finds_another_one_leading_ends(kafka_settings: KafkaSettings) -> None:
    """Somebody must learn that it was taken over. While nobody else has the lease, it may have it again."""
    says = Says(held=True)
    one = election(kafka_settings, says, standby=True)
    assert one.poll(caught_up=True)
    says.held, says.silent_s = False, 12.0
    assert not one.poll(caught_up=True)
    says.elsewhere = True
    with pytest.raises(Fenced, match=r"did nothing for 12\.0 s, and its lease \(m\.lease\) ended; another learner"):
        one.poll(caught_up=True)


def test_a_standby_that_wakes_and_has_the_lease_again_goes_on(kafka_settings: KafkaSettings) -> None:
    """It has slept through the end of its lease, and nobody was there to take it."""
    says = Says(held=True)
    one = election(kafka_settings, says, standby=True)
    one.poll(caught_up=True)
    says.held, says.silent_s = False, 12.0
    assert not one.poll(caught_up=True)
    says.held, says.silent_s = True, 0.0
    assert one.poll(caught_up=True)
    says.held, says.elsewhere = False, True
    assert not one.poll(caught_up=True)


@pytest.mark.parametrize("says", [Says(), Says(held=True), Says(elsewhere=True), Says(elsewhere=True, silent_s=12.0)])
def test_a_plain_learner_leads_whatever_its_lease_says(kafka_settings: KafkaSettings, says: Says) -> None:
    """What ends it is another one's transactional id."""
    assert election(kafka_settings, says, standby=False).poll(caught_up=False)
