"""Whether a learner leads, by what its lease says. `tests/e2e/test_standby.py` has the races of the real lease."""

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
    """Stands in for a lease: what the group last said, and how long this process had slept when the lease ended."""

    held: bool = False
    elsewhere: bool = False
    silent_s: float = 0.0

    def poll(self) -> None:
        """Do nothing: there is no news."""


def election(settings: KafkaSettings, says: Says, *, standby: bool) -> Election:
    """The election of a learner that is given this lease when it asks for one."""
    tree: dict[str, Any] = {
        "model": "m",
        "kafka": {"bootstrap.servers": settings.bootstrap},
        "input": {"impressions": {"topic": "i"}, "clicks": {"topic": "c"}},
    }
    return Election(
        Config.model_validate(tree), settings, standby=standby, new_lease=lambda *given, **named: cast(Lease, says)
    )


def test_a_standby_that_has_not_caught_up_is_no_candidate(kafka_settings: KafkaSettings) -> None:
    """Even a lease that would be given to it at once does not make it lead."""
    one = election(kafka_settings, Says(held=True), standby=True)
    assert not one.poll(caught_up=False)
    assert one.poll(caught_up=True)


def test_a_standby_leads_while_it_holds_the_lease(kafka_settings: KafkaSettings) -> None:
    """If it loses the lease while it is awake, because no broker answers, it follows again, whoever has it now."""
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
    """An operator must learn of the take-over. While nobody else has the lease, the standby may get it again."""
    says = Says(held=True)
    one = election(kafka_settings, says, standby=True)
    assert one.poll(caught_up=True)
    says.held, says.silent_s = False, 12.0
    assert not one.poll(caught_up=True)
    says.elsewhere = True
    with pytest.raises(Fenced, match=r"did nothing for 12\.0 s, and its lease \(m\.lease\) ended; another learner"):
        one.poll(caught_up=True)


def test_a_standby_that_wakes_and_has_the_lease_again_goes_on(kafka_settings: KafkaSettings) -> None:
    """It slept through the end of its lease, and nobody else was there to take it."""
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
    """Only another learner that initialises the same transactional id ends it."""
    assert election(kafka_settings, says, standby=False).poll(caught_up=False)
