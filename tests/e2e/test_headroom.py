"""Joiners and learners tell how long the topics keep what they still need."""

from __future__ import annotations

import pytest

from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.roles.joiner.role import JoinerRole
from tests.cli_e2e.scraped import values_of
from tests.e2e.conftest import MakeSite
from tests.e2e.site import running, wait_until
from tests.scenarios import scenario

DAY_S = 86_400


@pytest.mark.thorough
def test_what_is_needed_of_a_log_that_is_kept_for_a_week_is_kept_for_a_week(make_site: MakeSite) -> None:
    """Each partition of the training log, as soon as there is a resume point, and a checkpoint. Inputs that are never
    trimmed have no figure; neither have partitions that a joiner gives away, as one that stops does with all."""
    site = make_site(scenario("everything"))
    site.produce()
    joined, learned = Metrics(site.model), Metrics(site.model)
    joiner, learner = JoinerRole(site.config, joined), site.learner(metrics=learned)
    with running(joiner, learner):
        wait_until(site.closed, "every tick closed")
        for partition in range(site.partitions):
            wait_until(lambda p=partition: headroom(joined, "joiner", f"log,{p}"), "the joiner's figure")  # type: ignore[misc]
            wait_until(lambda p=partition: headroom(learned, "learner", f"{p}"), "the learner's figure")  # type: ignore[misc]
        shown = values_of(joined.text().decode())
        assert not [labels for name, labels in shown if "headroom" in name and not labels.startswith("log")]
    assert not any(headroom(joined, "joiner", f"log,{partition}") for partition in range(site.partitions))


def headroom(metrics: Metrics, role: str, labels: str) -> bool:
    """Whether there is a figure of nearly the seven days that a broker keeps records."""
    found = values_of(metrics.text().decode()).get((f"{role}_retention_headroom_seconds", labels))
    return found is not None and 6.9 * DAY_S < found <= 7 * DAY_S
