"""What a model takes at the rate of a sample: the rate, the features, and the laws of the arithmetic."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core.events.reference import PlainRow
from stream_learner.operations.doctor.sample import Record, TopicSample
from stream_learner.operations.doctor.sizing import Need, Prices, Traffic, needs
from stream_learner.operations.doctor.traffic import features_of
from tests.operations.doctor.site import EPOCH_MS, SPACING_MS, Site, happened, impression
from tests.operations.doctor.test_doctor_on_samples import each, newest, report_of

TRAFFIC = Traffic(a_s=2_000, event_bytes=900, features=60, model_features=1_000_000)


def by_name(traffic: Traffic) -> dict[str, Need]:
    """What is needed, by what it is."""
    return {need.what: need for need in needs(traffic)}


def test_the_rate_and_the_features_of_a_site_are_those_it_was_made_with() -> None:
    """Also from the newest records of each partition; a clock that is wrong once in a while moves nothing."""
    odd = Site().with_impressions(
        write=lambda one: {**impression(one), "ts": one.time_ms / 1000 - (90_000 if one.number % 200 == 7 else 0)}
    )
    for report in (report_of(Site()), report_of(Site(), impressions=newest(60)), report_of(odd)):
        assert report.sizing is not None
        assert report.sizing["impressions_a_second"] == pytest.approx(1000 / SPACING_MS, rel=0.1)
    sizing = report_of(Site()).sizing
    assert sizing is not None
    texts = [json.dumps(impression(one)) for one in happened(0)[0]]
    assert sizing["event_bytes"] == pytest.approx(sum(map(len, texts)) / len(texts) + 10 + 25, rel=0.02), "and its key"
    names = {"imp.slot": 3, "device.os": 3, "device.w": 3, "user.id": 90, "site": 1, "ad.id": 23}
    assert sum(names.values()) < sizing["features_seen"] <= sum(names.values()) + 10, "and those of the price"
    assert len(names) + 2 <= sizing["features_an_example"] <= len(names) + 3, "price and bias"
    assert sizing["new_features_a_day"] == 0, "every value has come twice"


@pytest.mark.parametrize(
    ("written_ms", "by"),
    [
        (lambda one: one.time_ms, "offsets and timestamps of records, over "),
        (lambda one: one.time_ms // 20_000 * 20_000, "offsets and timestamps of records, over "),
        (lambda one: EPOCH_MS, "offsets and times of events, over "),
    ],
    ids=["as they happen", "in bunches", "a replay at once"],
)
def test_the_rate_is_that_of_the_topic_and_not_of_its_newest_records(
    written_ms: Callable[[Record], int], by: str
) -> None:
    """From the first records to the last, of which the sample has 20 in each partition; what was used is told."""

    def ends(sample: TopicSample) -> TopicSample:
        kept = each(lambda one: one._replace(time_ms=written_ms(one)))(sample)
        newest = {partition: of[-20:] for partition, of in kept.blocks[0].items()}
        firsts = {partition: of[:20] for partition, of in kept.blocks[0].items()}
        return replace(kept, blocks=(newest,), firsts=firsts, whole=False)

    sizing = report_of(Site(), impressions=ends).sizing
    assert sizing is not None
    assert sizing["impressions_a_second"] == pytest.approx(1000 / SPACING_MS, rel=0.2)
    assert sizing["rate_by"].startswith(by)


def test_a_value_of_its_own_in_each_event_is_a_new_feature_of_each() -> None:
    """So many a day as there are impressions. Without times there is no rate, and nothing is said."""
    own = Site().with_impressions(write=lambda one: {**impression(one), "request": f"r{one.number}"})
    sizing = report_of(own).sizing
    assert sizing is not None
    assert sizing["new_features_a_day"] == pytest.approx(sizing["impressions_a_second"] * 86_400, rel=1e-3)
    at_once = each(lambda one: one._replace(time_ms=1_793_000_000_000))
    assert report_of(Site().with_settings("input.impressions.time=null"), at_once).sizing is None


@given(st.lists(st.integers(0, 30), min_size=20, max_size=200))
def test_new_features_are_those_seen_once(keys: list[int]) -> None:
    """By counting: how many of the examples have a feature that no other one has."""
    found = features_of([PlainRow(keys=[key, 1_000]) for key in keys])
    assert found is not None
    alone = sum(keys.count(key) == 1 for key in keys)
    assert (found.of_example, found.seen, found.new) == (3.0, len({*keys}) + 1, alone / len(keys))
    assert features_of([PlainRow(keys=[1])] * 19) is None


def test_twice_the_rate_takes_twice_of_what_grows_with_it() -> None:
    """Cores, the joiners' memory, the disk of inputs and log; a model of the same features stays as it is."""
    one, two = by_name(TRAFFIC), by_name(replace(TRAFFIC, a_s=4_000))
    grown = {name for name in one if two[name].size == pytest.approx(2 * one[name].size)}
    cores = {"joiners: cores", "learner: cores", "brokers: cores"}
    assert grown == cores | {"joiners: memory", "brokers: impressions", "brokers: training log"}
    assert {name for name in one if one[name].grows} == cores | {"joiners: memory"}
    assert {name for name in one if two[name].size == one[name].size} == one.keys() - grown


def test_an_impression_as_measured_takes_what_was_measured() -> None:
    """A larger one more in proportion, a smaller one no less."""
    prices = Prices()
    as_measured = replace(TRAFFIC, a_s=1e9, event_bytes=prices.event_bytes, features=prices.features)
    for smaller in (as_measured, replace(as_measured, event_bytes=100), replace(as_measured, features=5)):
        found = by_name(smaller)
        names = ("joiners: cores", "learner: cores", "brokers: cores")
        assert [found[name].size for name in names] == [prices.join_ns, prices.learn_ns, prices.brokers_ns]
    large = by_name(replace(as_measured, event_bytes=3 * prices.event_bytes, features=2 * prices.features))
    assert large["joiners: cores"].size == pytest.approx(3 * prices.join_ns)
    assert large["learner: cores"].size == pytest.approx(2 * prices.learn_ns)
    assert large["brokers: cores"].size == pytest.approx(3 * (prices.brokers_ns or 0))


@pytest.mark.parametrize(("a_s", "partitions"), [(1, 1), (90_000, 1), (200_000, 3), (1_000_000, 11)])
def test_partitions_are_enough_for_the_peak(a_s: float, partitions: int) -> None:
    """1,699 ns an impression, three times as many at the peak, half a core for each partition."""
    as_measured = Traffic(a_s, Prices.event_bytes, Prices.features, 1)
    assert by_name(as_measured)["partitions: at the least"].size == partitions
    assert a_s * 1_699e-9 * 3 <= partitions * 0.5
