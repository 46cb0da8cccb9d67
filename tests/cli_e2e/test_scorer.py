"""The scorer library on a real Kafka: every answer of one version, readiness with reasons, from many threads."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from structlog.testing import capture_logs

from stream_learner import BadEvent, Scorer
from stream_learner.adapters.kafka import PartitionReader, TopicWatch
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.reasons import Reason
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from stream_learner.core.snapshots.records import ModelRecord, decode, encode_model
from stream_learner.errors import ConfigError, NewerFormat, NotReady, TopicMissing
from stream_learner.roles.scorer import replica
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import SHARDS, Published, p_click
from tests.cli_e2e.scraped import values_of
from tests.kafka_broker.broker import delete_topics
from tests.waiting import patience, wait_until

A, B, X = hash_texts([b"site=a", b"site=b", b"x=b2046"])
WEIGHTS = {BIAS_KEY: -1.0, A: 0.5, B: -2.0, X: 0.25}
THREADS = 4


@pytest.fixture(scope="module")
def model(make_world: MakeWorld) -> Iterator[Published]:
    """A model whose version is 1000 and whose weights are known."""
    published = Published(make_world())
    published.publish(1000, WEIGHTS)
    yield published
    published.close()


@pytest.fixture(scope="module")
def scorer(model: Published) -> Iterator[Scorer]:
    """A scorer that is ready."""
    with scorer_of(model) as scorer:
        scorer.wait_ready(patience())
        yield scorer


def scorer_of(model: Published, **options: object) -> Scorer:
    """A scorer of a model, not started."""
    return Scorer(model.world.settings.bootstrap, model.world.model, **options)  # type: ignore[arg-type]


def test_events_of_any_kind_in_one_call(scorer: Scorer, model: Published) -> None:
    """Dictionaries, bytes and text give the same prediction; the id and the time of an event are no features."""
    same = [{"site": "a", "x": 1}, b'{"site":"a","x":1}', '{"site": "a", "x": 1.0, "id": 5, "time": 7}']
    found = scorer.predict_many([*same, b"nonsense", {"site": "b"}])
    assert found.status.tolist() == [0, 0, 0, Reason.NOT_JSON, 0]
    expected = p_click(WEIGHTS, [BIAS_KEY, A, X])
    assert found.p_click[:3].tolist() == pytest.approx([expected] * 3, abs=1e-12)
    assert np.isnan(found.p_click[3])
    assert found.p_click[4] == pytest.approx(p_click(WEIGHTS, [BIAS_KEY, B]), abs=1e-12)
    assert (found.version, found.model, len(found)) == (1000, model.world.model, 5)
    for event, p in zip(same, found.p_click.tolist(), strict=False):
        assert scorer.predict(event) == (p, 1000, model.world.model)
    assert len(scorer.predict_many([])) == 0


def test_an_event_that_cannot_be_scored_raises_alone(scorer: Scorer) -> None:
    """`predict` raises BadEvent with the reason; values that have no JSON are the caller's mistake."""
    with pytest.raises(BadEvent, match="not JSON") as caught:
        scorer.predict(b"nonsense")
    assert caught.value.reason is Reason.NOT_JSON
    with pytest.raises(BadEvent) as caught:
        scorer.predict("[1]")
    assert caught.value.reason is Reason.NOT_OBJECT
    with pytest.raises(TypeError, match="event 1:"):
        scorer.predict_many([{}, {"a": object()}])


def test_hashed_features(scorer: Scorer) -> None:
    """The same as the events that they come from; arrays that do not fit together are refused."""
    found = scorer.predict_hashed([BIAS_KEY, A, BIAS_KEY], [1.0, 2.0, 1.0], [0, 2, 3])
    assert found.p_click.tolist() == pytest.approx([0.5, p_click(WEIGHTS, [BIAS_KEY])])
    assert found.status.tolist() == [0, 0] and found.version == 1000
    with pytest.raises(ValueError, match="row_start"):
        scorer.predict_hashed([A], [1.0], [0, 2])


def test_what_a_scorer_says_of_its_model(scorer: Scorer, model: Published) -> None:
    """Version, freshness, weights, description."""
    assert scorer.ready and scorer.why_not_ready == ""
    assert (scorer.version, scorer.weights, scorer.weight(B), scorer.weight(99)) == (1000, 4, -2.0, 0.0)
    tick_ms = model.world.config.join.tick_ms
    assert scorer.freshness_ms == pytest.approx(time.time() * 1000 - 1001 * tick_ms, abs=5_000)
    assert scorer.description["name"] == model.world.model
    keys, weights = scorer.largest_weights(2)
    assert (keys.tolist(), weights.tolist()) == ([B, BIAS_KEY], [-2.0, -1.0])


def test_every_answer_is_of_one_version_while_versions_come(make_world: MakeWorld) -> None:
    """Threads that predict one and many, as fast as they can, always get the weights of the version they are told."""
    model = Published(make_world())
    keys = [(i * 0x9E3779B97F4A7C15 + 1) % 2**64 for i in range(200)]
    by_version = {v: (v % 64) / 16 for v in range(1, 41)}
    applied: list[int] = []
    mistakes: list[object] = []
    seen: set[int] = set()
    stop = threading.Event()
    model.publish(1, dict.fromkeys(keys, by_version[1] / len(keys)))

    def predict() -> None:
        columns = (keys * 3, [1.0] * 600, [0, 200, 400, 600])
        while not stop.is_set():
            found = scorer.predict_hashed(*columns)
            expected = 1 / (1 + np.exp(-by_version[found.version]))
            seen.add(found.version)
            if not np.allclose(found.p_click, expected, atol=1e-6):
                mistakes.append(found)

    with scorer_of(model, on_version=applied.append) as scorer:
        scorer.wait_ready(patience())
        threads = [threading.Thread(target=predict) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for version in range(2, 41):
            model.publish(version, dict.fromkeys(keys, by_version[version] / len(keys)))
        wait_until(lambda: 40 in seen)
        stop.set()
        for thread in threads:
            thread.join()
    model.close()
    assert not mistakes
    assert len(seen) > 5 and max(seen) == 40
    assert applied == sorted(set(applied)) and applied[-1] == 40


def test_a_callback_that_fails_does_not_end_the_following(make_world: MakeWorld) -> None:
    """What it raises is logged; the next version is applied all the same, and counted in the metrics."""
    model, metrics = Published(make_world()), Metrics("m")

    def fail(version: int) -> None:
        raise ZeroDivisionError

    model.publish(5, WEIGHTS)
    with scorer_of(model, on_version=fail, metrics=metrics) as scorer:
        scorer.wait_ready(patience())
        model.publish(6, {A: 3.0})
        wait_until(lambda: scorer.version == 6)
        assert scorer.ready and scorer.weight(A) == 3.0
        values = values_of(metrics.text().decode())
        assert values["scorer_versions_applied_total", ""] == 2
        assert values["scorer_version", ""] == 6
        assert values["scorer_ready", ""] == 1
        assert values["scorer_load_seconds_count", ""] == 1
    model.close()


@pytest.mark.parametrize(
    ("features", "shared"), [({}, True), ({"key_rule": 1}, True), ({"key_rule": 2}, False), ({"key_rule": 3}, False)]
)
def test_a_model_is_scored_by_the_rule_of_its_keys(
    make_world: MakeWorld, features: dict[str, int], shared: bool
) -> None:
    """By rule 1, and where the record has none, `a=b` as a number is the category `b` of `a`; by 2 and 3 it is not."""
    model = Published(make_world(), features)
    (category,) = hash_texts([b"a=b"])
    model.publish(5, {BIAS_KEY: -1.0, category: 2.0})
    with scorer_of(model) as scorer:
        scorer.wait_ready(patience())
        found = scorer.predict_many([{"a": "b"}, {"a=b": 1}, {"": 1}]).p_click
    weights = [BIAS_KEY, category]
    expected = [weights, weights, [BIAS_KEY, BIAS_KEY]] if shared else [weights, [BIAS_KEY], [BIAS_KEY]]
    assert found.tolist() == pytest.approx([p_click(model.weights, keys) for keys in expected], abs=1e-12)
    model.close()


def test_a_rule_of_keys_that_is_not_known_is_refused(make_world: MakeWorld) -> None:
    """A model of a newer program is never scored by an older rule."""
    model = Published(make_world(), {"key_rule": 4})
    model.publish(5, WEIGHTS)
    with scorer_of(model) as scorer, pytest.raises(NewerFormat, match="key_rule must be one of 1, 2, 3, not 4"):
        scorer.wait_ready(patience())
    model.close()


def test_an_old_version_is_stale_until_the_next(make_world: MakeWorld) -> None:
    """Past stale_after it says since when, in metrics and log too, once; it is ready all the same, and predicts."""
    model, metrics = Published(make_world()), Metrics("m")
    model.publish(5, WEIGHTS)
    with scorer_of(model, stale_after_ms=1_000, metrics=metrics) as scorer, capture_logs() as logs:
        scorer.wait_ready(patience())
        wait_until(lambda: bool(scorer.why_stale))
        assert re.fullmatch(r"the last version was published [1-9]\d* s ago", scorer.why_stale)
        assert scorer.version_age_s is not None and scorer.version_age_s > 1
        values = values_of(metrics.text().decode())
        assert (values["scorer_ready", ""], values["scorer_stale", ""]) == (1, 1)
        assert values["scorer_version_age_seconds", ""] > 1
        assert scorer.ready and scorer.predict({"site": "a"}).version == 5
        assert scorer.predict_many([{"site": "a"}]).version_age_s > 1  # type: ignore[operator]
        wait_until(lambda: any(line["event"] == "version_stale" for line in logs))
        model.publish(6, {A: 1.0})
        wait_until(lambda: scorer.version == 6 and not scorer.why_stale)
        wait_until(lambda: any(line["event"] == "version_fresh" for line in logs))
        told = [line["event"] for line in logs if line["event"] in ("version_stale", "version_fresh")]
        assert told[:2] == ["version_stale", "version_fresh"]
    model.close()


def test_only_refuse_after_ends_predictions_and_the_next_version_begins_them_again(make_world: MakeWorld) -> None:
    """It is another setting than stale_after, and by default there is none; the scorer is ready all the same."""
    model = Published(make_world())
    model.publish(4, WEIGHTS)
    with scorer_of(model, stale_after_ms=1_000, refuse_after_ms=3_000) as scorer:
        wait_until(lambda: scorer.version == 4)
        model.publish(5, WEIGHTS)
        wait_until(lambda: scorer.version == 5)
        assert scorer.predict({"site": "a"}).version == 5
        wait_until(lambda: bool(scorer.why_refused))
        assert scorer.ready and "refuse_after" in scorer.why_refused and scorer.why_stale
        for call in (
            lambda: scorer.predict({"site": "a"}),
            lambda: scorer.predict_many([{}]),
            lambda: scorer.predict_json(b"{}", np.array([0, 2])),
            lambda: scorer.predict_hashed([A], [1.0], [0, 1]),
        ):
            with pytest.raises(NotReady, match=r"published \d+ s ago"):
                call()
        model.publish(6, {A: 1.0})
        wait_until(lambda: scorer.version == 6 and not scorer.why_refused)
        assert scorer.predict({"site": "a"}).version == 6
    model.close()


def damaged(value: bytes) -> bytes:
    """With one bit of its body turned."""
    return value[:-1] + bytes([value[-1] ^ 1])


def newest(model: Published, key: str) -> tuple[int, bytes, bytes]:
    """The shard, the key and the value of the last record whose key begins so."""
    found = None
    for shard in range(SHARDS):
        place = (model.topic, shard)
        end = model.world.admin.offsets.last_stable_offsets([place])[place]
        with PartitionReader(model.world.settings, *place, 0, with_keys=True) as reader:
            while reader.position < end:
                batch = reader.read(100, 0.2)
                for at, value in zip(batch.keys or (), batch.values, strict=True) if batch is not None else ():
                    if at is not None and value is not None and at.decode().startswith(key):
                        found = (shard, at, value)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["junk", "junk-as-model", "delta", "page", "version", "features"])
def test_a_record_that_cannot_be_used_is_passed_over_and_healed(make_world: MakeWorld, kind: str) -> None:
    """Four bytes of junk, a damaged delta, a page and a version whose checksum is wrong, a model that nobody can encode
    events for: the scorer is ready and answers with the version before, counts the record and names its offset, and
    what is published next is served."""
    model, metrics = Published(make_world()), Metrics("m")
    model.publish(5, WEIGHTS)
    expected = p_click(WEIGHTS, [BIAS_KEY, A])
    with scorer_of(model, metrics=metrics) as scorer, capture_logs() as logs:
        scorer.wait_ready(patience())
        if kind.startswith("junk"):
            shard, bad = 0, (b"model" if kind == "junk-as-model" else b"a", b"junk")
        elif kind == "features":
            shard, bad = 0, (b"model", newest_model(model, key_rule=9))
        else:
            shard, key, value = newest(model, kind)
            bad = (key, damaged(value))
        model.world.append(model.topic, shard, bad)
        wait_until(lambda: values_of(metrics.text().decode())["scorer_records_unusable_total", ""] == 1)
        assert scorer.ready and scorer.why_refused == ""
        assert scorer.predict({"site": "a"}) == (pytest.approx(expected), 5, model.world.model)
        named = next(line for line in logs if line["event"] == "snapshot_record_unusable")
        assert (named["partition"], type(named["offset"])) == (shard, int)
        assert f"topic {model.topic}, partition {shard}, offset {named['offset']}" in named["reason"]
        model.publish(6, {A: 6.0})
        wait_until(lambda: scorer.version == 6)
        assert scorer.weight(A) == 6.0 and scorer.trouble == ""
    model.close()


def newest_model(model: Published, **features: object) -> bytes:
    """A model record with other features, and a checksum that is right."""
    _, key, value = newest(model, "model")
    record = decode(key, value)
    assert isinstance(record, ModelRecord)
    content = {**record.content, "features": {**record.content["features"], **features}}
    return encode_model(record.stamp, int(record.content["digest"], 16), content)


def test_junk_instead_of_a_delta_is_healed_by_the_next_whole_publication(make_world: MakeWorld) -> None:
    """A publication whose delta and pages are damaged is not served; once every page has been published again, whole
    versions are served again."""
    model = Published(make_world())
    model.publish(5, WEIGHTS)
    with scorer_of(model) as scorer:
        scorer.wait_ready(patience())
        model.publish(6, {A: 6.0}, damage=lambda key, value: value if key == b"version" else damaged(value))
        wait_until(lambda: "publication 2 was not read" in scorer.trouble)
        assert scorer.ready and scorer.predict({"site": "a"}).version == 5 and scorer.weight(A) == WEIGHTS[A]
        for version in range(7, 20):
            model.publish(version, {A: float(version)})
        wait_until(lambda: scorer.version == 19 and scorer.trouble == "")
        assert scorer.weight(A) == 19.0
    model.close()


def test_before_the_first_version(make_world: MakeWorld) -> None:
    """An empty topic: not ready, with the reason, and no predictions, until something is published."""
    model = Published(make_world())
    with scorer_of(model) as scorer:
        with pytest.raises(NotReady, match=r"not ready after 0\.2 s: partition 0"):
            scorer.wait_ready(0.2)
        with pytest.raises(NotReady, match="no version yet"):
            scorer.predict({"site": "a"})
        assert (scorer.ready, scorer.version, scorer.freshness_ms, scorer.description) == (False, -1, None, {})
        assert len(scorer.largest_weights(3)[0]) == 0
        model.publish(3, WEIGHTS)
        scorer.wait_ready(patience())
        assert scorer.predict({"site": "a"}).version == 3
    model.close()


def test_a_scorer_outside_its_life(model: Published) -> None:
    """Before the start it is not ready and can be scraped; once closed it answers with what it has; it starts once."""
    metrics = Metrics("m")
    scorer = scorer_of(model, metrics=metrics)
    assert not scorer.ready and "start()" in scorer.why_not_ready and scorer.version == -1
    assert b'scorer_ready{model="m"} 0.0' in metrics.text()
    for call in (lambda: scorer.predict({}), lambda: scorer.predict_many([]), lambda: scorer.wait_ready(1)):
        with pytest.raises(NotReady, match=r"start\(\)"):
            call()
    with scorer:
        scorer.wait_ready(patience())
        with pytest.raises(RuntimeError):
            scorer.start()
    scorer.close()
    assert (scorer.ready, scorer.why_not_ready) == (False, "the scorer was closed")
    assert scorer.predict({"site": "a"}).version == 1000


def test_a_scorer_may_be_closed_from_its_callback(model: Published) -> None:
    """Without waiting for itself."""
    scorer = scorer_of(model, on_version=lambda version: scorer.close()).start()
    wait_until(lambda: scorer.why_not_ready == "the scorer was closed")
    assert scorer.version == 1000


def test_what_cannot_be_followed_is_said_at_the_start(make_world: MakeWorld) -> None:
    """A topic that is missing, brokers out of reach, no model's name."""
    world = make_world()
    with pytest.raises(TopicMissing, match=world.config.snapshots_topic):
        Scorer(world.settings.bootstrap, world.model).start()
    with pytest.raises(ConfigError, match="name"):
        Scorer(world.settings.bootstrap)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        Scorer(model=world.model)


def test_a_topic_that_is_deleted_and_made_again_is_followed_again(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the last version answers, the scorer is ready and says what is wrong; a version of the new topic takes
    its place by itself."""
    monkeypatch.setitem(TopicWatch.__init__.__kwdefaults__, "period_s", 0.1)
    monkeypatch.setattr(replica, "AGAIN_S", 0.5)
    world = make_world()
    model = Published(world)
    model.publish(5, WEIGHTS)
    with scorer_of(model) as scorer:
        scorer.wait_ready(patience())
        delete_topics(world.settings.bootstrap, [model.topic])
        wait_until(lambda: model.topic in scorer.trouble)
        assert scorer.ready and scorer.predict({"site": "a"}).version == 5
        model.close()
        again = Published(world)
        again.publish(3, {A: 3.0})
        wait_until(lambda: scorer.version == 3)
        assert scorer.weight(A) == 3.0 and scorer.weight(B) == 0.0
        again.publish(4, {A: 4.0})
        wait_until(lambda: scorer.version == 4 and scorer.trouble == "")
        again.close()
