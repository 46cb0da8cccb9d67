"""A model that begins where the click topic reaches back less far than the impression topic."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from tests.e2e.conftest import MakeSite
from tests.e2e.site import running, wait_until
from tests.oracles import loop
from tests.scenarios import records, scenario


def test_impressions_whose_clicks_are_gone_are_not_learned(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of the clicks are deleted: the log begins with the first impression that is not older than those left."""
    caplog.set_level("INFO")
    made = scenario("plain", partitions=1)
    site = make_site(made)
    site.produce()
    impressions, clicks = made.impressions[0], made.clicks[0]
    half = len(clicks) // 2
    for future in site.plain_admin.delete_records([TopicPartition(site.clicks, 0, half)]).values():
        future.result()
    first = next(n for n, message in enumerate(impressions) if message.timestamp_ms >= clicks[half].timestamp_ms)
    assert first > 10
    with running(site.joiner()):
        wait_until(site.closed, "all of it joined")
    left = loop.join_topics(records([impressions[first:]]), records([clicks[half:]]), made.settings)
    assert [example[2:5] for example in site.log(0).examples()] == [
        (e.id_hash, e.label, e.weight) for joined in left for e in joined.examples
    ]
    said = [r.msg for r in caplog.records if isinstance(r.msg, dict) and r.msg["event"] == "impressions_left_out"]
    assert [line["offsets"] for line in said] == [first]
