"""The TalkingData sample on a real Kafka, at three windows, equal to the oracle and to the known positives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import talkingdata
from tests.e2e.checks import (
    assert_balance,
    assert_log_equals,
    assert_model_equals,
    assert_model_is_near,
    assert_predictions_equal,
    balance_of,
    expected_fold,
)
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import Site, running, wait_until
from tests.kafka_broker.broker import delete_topics
from tests.oracles import loop
from tests.scenarios import records, talkingdata_scenario
from tests.suite.share import cases
from tests.waiting import patience

PARTITIONS = 2
pytestmark = pytest.mark.thorough

TICKS_MS = {600_000: 10_000, 3_600_000: 30_000, 86_400_000: 60_000}
"""For each window another length of the ticks: with those of a second, nearly every example has a tick of its own."""

Events = list[tuple[list[loop.Impression], list[loop.Click]]]


@pytest.fixture(scope="module")
def inputs(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The sample in two topics, with sentinels that close the widest window."""
    widest_ms = max(talkingdata.POSITIVES_BY_WINDOW_MS)
    site = Site(kafka, talkingdata_scenario(widest_ms, PARTITIONS), tmp_path_factory.mktemp("talkingdata"))
    site.produce()
    yield site
    delete_topics(kafka, site.topics)


@pytest.fixture(scope="module")
def events(inputs: Site) -> Events:
    """The events as the oracle reads them; no setting of the join changes them."""
    s = inputs.scenario.settings
    return [
        ([loop.read_impression(r, s) for r in imps], [loop.read_click(r, s) for r in clks])
        for imps, clks in zip(records(inputs.scenario.impressions), records(inputs.scenario.clicks), strict=True)
    ]


@pytest.mark.parametrize("window_ms", cases(talkingdata.POSITIVES_BY_WINDOW_MS, [3_600_000], "nightly"))
def test_log_model_and_predictions_equal_the_oracle(
    window_ms: int, inputs: Site, events: Events, make_site: MakeSite
) -> None:
    """All examples in order, the known positives, z and n to the last bit, predictions to float32."""
    site = make_site(inputs.scenario.with_settings(window_ms=window_ms, tick_ms=TICKS_MS[window_ms]), inputs_of=inputs)
    s = site.scenario.settings
    learner = site.learner()
    with process_of(site, "join"), running(learner):
        joined = [loop.join_by_log_time(*of_partition, s, p) for p, of_partition in enumerate(events)]
        model = expected_fold(joined, s)
        wait_until(lambda: site.folded(learner), "every tick closed and folded")
    assert_model_equals(learner.learner, model)
    assert_model_is_near(model, expected_fold(joined, s, libm=True))
    assert_log_equals(site, joined)
    assert_balance(site)
    sums = balance_of(site).impressions
    assert (sums.examples, sums.positives) == (talkingdata.ROWS, talkingdata.POSITIVES_BY_WINDOW_MS[window_ms])
    with site.scorer() as scorer:
        scorer.wait_ready(patience())
        wait_until(lambda: scorer.version == learner.tick, "the last version")
        assert_predictions_equal(scorer, site, model)
