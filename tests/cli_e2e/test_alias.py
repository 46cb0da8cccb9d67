"""A scorer that follows an alias, on a real Kafka: promoted, rolled back, pinned, paused under load; what is missing
or damaged never takes away what is served."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_learner import Prediction, Scorer
from stream_learner.adapters.kafka import TopicPlan, TopicWatch
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.control.records import PROMOTE, Alias, Change, Pin, Publication, encode
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from stream_learner.errors import ConfigError, NotReady, PartitionCountsDiffer, TopicMissing
from stream_learner.operations.topics import control_plan
from stream_learner.roles.control import watch as control_watch
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.scorer import served_model
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published, p_click
from tests.cli_e2e.scraped import values_of
from tests.cli_e2e.world import free_port
from tests.kafka_broker.broker import delete_topics
from tests.waiting import patience, wait_until

(A,) = hash_texts([b"site=a"])
EVENT = {"site": "a"}
THREADS = 4
RATE = 500
"""Predictions a second, over all threads together."""


class Family:
    """Models that share a control topic, and an alias that points at one of them."""

    def __init__(self, make_world: MakeWorld, count: int = 2) -> None:
        first = make_world()
        self.control = first.config.control_topic
        first.admin.create([control_plan(first.config)])
        others = [make_world(topics={"control": self.control}) for _ in range(count - 1)]
        self.models = [Published(world) for world in (first, *others)]
        self.names = [model.world.model for model in self.models]
        self.alias = f"{first.model}-alias"
        self._settings = first.settings
        for k, model in enumerate(self.models):
            model.publish(1000 + k, {BIAS_KEY: float(k)})

    def scorer(self, **options: Any) -> Scorer:
        """One that follows the alias, not started."""
        return Scorer(self._settings.bootstrap, alias=self.alias, control_topic=self.control, **options)

    def of_model(self, k: int, **options: Any) -> Scorer:
        """One that follows a model, not started."""
        return Scorer(self._settings.bootstrap, self.names[k], control_topic=self.control, **options)

    def point(self, to: str | None, *, topic: ControlTopic | None = None) -> None:
        """Point the alias at a model, without asking whether it is fit."""
        control = topic or ControlTopic(self._settings, self.control)
        alias = control.state.aliases.get(self.alias)
        what = PROMOTE if to is not None else "delete"
        now_ms = time.time_ns() // 1_000_000
        change = Change(f"{time.time_ns():016x}", what, "test", now_ms, alias.model if alias else None, to)
        control.write(alias.changed(change) if alias is not None else Alias(self.alias, (change,)))

    def write(self, record: Pin | Publication) -> None:
        """Write a pin or a pause."""
        ControlTopic(self._settings, self.control).write(record)

    def pin(self, name: str, model: str, version: int | None, *, pinned: bool = True) -> None:
        self.write(Pin(name, model, pinned, version, "test", 1))

    def expected(self, k: int) -> float:
        """The prediction of a model for EVENT, from its weights in plain Python."""
        return p_click(self.models[k].weights, [BIAS_KEY, A])

    def close(self) -> None:
        for model in self.models:
            model.close()


@pytest.fixture
def family(make_world: MakeWorld) -> Iterator[Family]:
    """Two models, published, and an alias that points at the first."""
    made = Family(make_world)
    made.point(made.names[0])
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat after 0.1 s the looks that are otherwise repeated after seconds."""
    monkeypatch.setattr(control_watch, "AGAIN_S", 0.1)
    monkeypatch.setattr(served_model, "AGAIN_S", 0.1)
    monkeypatch.setitem(TopicWatch.__init__.__kwdefaults__, "period_s", 0.1)


def holds(scorer: Scorer, version: int) -> bool:
    """Whether all of a version has been read, be it served or not."""
    following = scorer._replica._reader
    with following._feeding:
        shards = [shard.versions() for shard in following.replica._followers]
    return all(any(known.version == version for known in shard) for shard in shards)


def obeys(scorer: Scorer, version: int | None) -> bool:
    """Whether a pin of the control topic to this version has arrived."""
    pin = scorer._replica.pinned
    return pin is not None and pin.version == version


class Load:
    """Threads that predict RATE times a second in all, and keep every answer."""

    def __init__(self, scorer: Scorer) -> None:
        self.answers: list[Prediction] = []
        self.errors: list[BaseException] = []
        self._scorer = scorer
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(THREADS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.wait(THREADS / RATE):
            try:
                self.answers.append(self._scorer.predict(EVENT))
                many = self._scorer.predict_many([EVENT, EVENT])
                each = zip(many.p_click.tolist(), many.known_features.tolist(), strict=True)
                self.answers += [Prediction(p, many.version, many.model, known) for p, known in each]
            except BaseException as error:  # noqa: BLE001 -- any of them fails the test
                self.errors.append(error)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_promotion_and_rollback_under_load(family: Family) -> None:
    """No call fails, every answer is that of one model at one version, and the other model answers before long;
    versions come in meanwhile."""
    truth: dict[tuple[str, int], float] = {}

    def publish(k: int, version: int, weight: float) -> None:
        family.models[k].weights[A] = weight
        truth[family.names[k], version] = family.expected(k)
        family.models[k].publish(version, {A: weight})

    for k in (0, 1):
        truth[family.names[k], 1000 + k] = family.expected(k)
    metrics = Metrics("alias")
    with family.scorer(metrics=metrics) as scorer:
        scorer.wait_ready(patience())
        with Load(scorer) as load:
            for turn, target in enumerate((1, 0, 1)):
                publish(0, 2000 + turn, 0.25 * turn)
                publish(1, 3000 + turn, -0.25 * turn)
                seen = len(load.answers)
                family.point(family.names[target])
                wait_until(lambda: scorer.model == family.names[target])  # noqa: B023
                wait_until(lambda: len(load.answers) > seen + 50)  # noqa: B023
        assert not load.errors, load.errors[:3]
        assert scorer.pending == "" and scorer.ready
        values = values_of(metrics.text().decode())
        assert values["scorer_switches_total", ""] == 3
        assert values["scorer_version", ""] == scorer.version
        info = {labels: value for (name, labels), value in values.items() if name == "scorer_model_info"}
        assert info == {family.names[1]: 1}
    assert {answer.model for answer in load.answers} == set(family.names)
    for answer in load.answers:
        assert answer.p_click == pytest.approx(truth[answer.model, answer.version], abs=1e-7)


def test_an_alias_answers_as_the_model_itself(family: Family) -> None:
    """To the bit, with the same description."""
    with family.scorer() as scorer, family.of_model(0) as plain:
        for each in (scorer, plain):
            each.wait_ready(patience())
        assert scorer.predict(EVENT) == plain.predict(EVENT)
        assert scorer.description == plain.description
        assert (scorer.name, scorer.model, plain.name) == (family.alias, family.names[0], family.names[0])


def test_a_model_that_cannot_be_loaded_leaves_what_is_served(family: Family) -> None:
    """One that does not exist, one that never published: `pending` says why, the scorer stays ready; once it is
    published it is served. A deleted alias keeps the model."""
    ghost = f"{family.alias}-ghost"
    with family.scorer() as scorer:
        scorer.wait_ready(patience())
        family.point(ghost)
        wait_until(lambda: f"{ghost}.snapshots" in scorer.pending)
        assert scorer.pending.startswith(f"{ghost}: ") and scorer.ready
        family.point(family.names[0])
        wait_until(lambda: scorer.pending == "")
        empty = f"{family.alias}-empty"
        family.models[0].world.admin.create([TopicPlan(f"{empty}.snapshots", 2)])
        family.point(empty)
        wait_until(lambda: "no version record was read" in scorer.pending)
        assert scorer.ready and scorer.model == family.names[0]
        family.point(family.names[1])
        wait_until(lambda: scorer.model == family.names[1])
        family.point(None)
        wait_until(lambda: scorer.pending == f"alias {family.alias} was deleted")
        assert scorer.ready and scorer.predict(EVENT).model == family.names[1]
        delete_topics(family.models[0].world.settings.bootstrap, [f"{empty}.snapshots"])


def test_an_alias_that_points_at_nothing_yet(make_world: MakeWorld) -> None:
    """A scorer may start before the first promotion: not ready, with what to do; and becomes so by itself."""
    family = Family(make_world, 1)
    with family.scorer() as scorer:
        wait_until(lambda: "points at no model" in scorer.why_not_ready)
        assert "stream-learner promote" in scorer.why_not_ready
        with pytest.raises(NotReady, match="points at no model"):
            scorer.predict(EVENT)
        with pytest.raises(NotReady, match="points at no model"):
            scorer.pin()
        assert (scorer.version, scorer.model, scorer.freshness_ms) == (-1, "", None)
        family.point(family.names[0])
        scorer.wait_ready(patience())
        assert scorer.predict(EVENT).p_click == pytest.approx(family.expected(0))
    family.close()


def test_without_a_control_topic(make_world: MakeWorld) -> None:
    """An alias cannot be followed, and what to do is said; a model can. A topic of two partitions is refused."""
    world = make_world()
    bootstrap, control = world.settings.bootstrap, world.config.control_topic
    with pytest.raises(TopicMissing, match=control) as caught:
        Scorer(bootstrap, alias="ctr", control_topic=control).start()
    assert "topics ensure" in caught.value.action
    model = Published(world)
    model.publish(5, {A: 1.0})
    with Scorer(bootstrap, world.model, control_topic=control) as scorer:
        scorer.wait_ready(patience())
        assert scorer.predict(EVENT).model == world.model
    world.admin.create([TopicPlan(control, 2)])
    with pytest.raises(PartitionCountsDiffer, match="has 2 partitions"):
        Scorer(bootstrap, alias="ctr", control_topic=control).start()
    model.close()


def test_a_control_topic_that_forgets_is_refused(make_world: MakeWorld) -> None:
    """With a policy that deletes, aliases would be gone after a while. `topics ensure --apply` mends it."""
    world = make_world()
    control = world.config.control_topic
    world.admin.create([TopicPlan(control, 1, configs={"cleanup.policy": "compact,delete"})])
    with pytest.raises(ConfigError, match=r"cleanup\.policy compact,delete") as caught:
        ControlTopic(world.settings, control)
    assert "topics ensure --apply" in caught.value.action
    assert world.admin.ensure([control_plan(world.config)], change=True)
    assert ControlTopic(world.settings, control).state.accepted == {}


def test_what_is_asked_for_must_be_clear(family: Family) -> None:
    """A request with neither a model nor an alias, with both, or with a topic and an alias is refused."""
    for options in ({}, {"model": "m", "alias": "a"}, {"alias": "a", "topic": "t"}):
        with pytest.raises(ConfigError):
            Scorer("localhost:1", **options)  # type: ignore[arg-type]


def test_a_pin_holds_the_version(family: Family) -> None:
    """Without a version the one that is served; scorers of an alias and of a model alike. Later versions are served at
    once when it is taken back. A pinned scorer is never stale. A pin of an alias is none of its model."""
    model, name = family.models[0], family.names[0]
    with family.scorer(stale_after_ms=1_000) as by_alias, family.of_model(0, stale_after_ms=1_000) as by_model:

        def pin(scorer: Scorer, to: str) -> None:
            wait_until(lambda: "ago" in scorer.why_stale)
            family.pin(to, name, None)
            wait_until(lambda: not scorer.why_stale, "nothing new is expected of it")

        def publish(versions: range) -> None:
            for version in versions:
                model.publish(version, {A: float(version)})
            wait_until(lambda: holds(by_alias, versions[-1]) and holds(by_model, versions[-1]))

        by_alias.wait_ready(patience())
        by_model.wait_ready(patience())
        pin(by_alias, family.alias)
        publish(range(1001, 1021))
        wait_until(lambda: by_model.version == 1020)
        pin(by_model, name)
        publish(range(1021, 1042))
        for scorer, version, weight in ((by_alias, 1000, 0.0), (by_model, 1020, 1020.0)):
            assert (scorer.version, scorer.ready, scorer.why_stale) == (version, True, "")
            assert scorer.predict(EVENT).version == version and scorer.weight(A) == weight
        for scorer, to in ((by_alias, family.alias), (by_model, name)):
            family.pin(to, name, None, pinned=False)
            wait_until(lambda: scorer.version == 1041)  # noqa: B023
            assert scorer.weight(A) == 1041.0


def test_a_pin_to_a_version(family: Family) -> None:
    """The scorer goes on up to the last version that is not beyond it. One that starts when the topic is past it is not
    ready and says so, until the pin is gone; one that is past it already stays where it is."""
    model = family.models[0]
    with family.scorer() as scorer:
        scorer.wait_ready(patience())
        family.pin(family.alias, family.names[0], 1005)
        for version in (1002, 1004, 1006, 1008):
            model.publish(version, {A: float(version)})
        wait_until(lambda: scorer.version == 1004)
        with family.scorer() as late, family.of_model(0) as plain:
            plain.wait_ready(patience())
            assert plain.version == 1008
            wait_until(lambda: "no longer" in late.why_not_ready)
            assert late.why_not_ready == "version 1005 is no longer in the topic: it holds 1008"
            with pytest.raises(NotReady):
                late.predict(EVENT)
            assert (scorer.version, scorer.ready) == (1004, True)
            family.pin(family.alias, family.names[0], 1001)
            wait_until(lambda: obeys(scorer, 1001))
            wait_until(lambda: late.why_not_ready == "version 1001 is no longer in the topic: it holds 1008")
            assert (scorer.version, scorer.ready) == (1004, True)
            family.pin(family.alias, family.names[0], None, pinned=False)
            late.wait_ready(patience())
            wait_until(lambda: late.version == scorer.version == 1008)
            assert late.weight(A) == scorer.weight(A) == 1008.0


def test_nothing_is_exchanged_while_a_pin_holds(family: Family) -> None:
    """A promotion takes effect when the alias is unpinned; a scorer that starts meanwhile loads the pinned model."""
    with family.scorer() as scorer:
        scorer.wait_ready(patience())
        family.pin(family.alias, family.names[0], None)
        family.point(family.names[1])
        wait_until(lambda: "is pinned to" in scorer.pending)
        with family.scorer() as late:
            late.wait_ready(patience())
            assert scorer.model == late.model == family.names[0]
        family.pin(family.alias, family.names[0], None, pinned=False)
        wait_until(lambda: scorer.model == family.names[1])
        assert scorer.pending == "" and scorer.predict(EVENT).version == 1001
        family.models[1].publish(1005, {A: 1.0})
        wait_until(lambda: scorer.version == 1005)


def test_a_pin_by_the_program(family: Family) -> None:
    """`pin` and `unpin` as calls: they hold at once, and win over the alias."""
    model = family.models[0]
    with family.scorer() as scorer, family.of_model(0) as other:
        for each in (scorer, other):
            each.wait_ready(patience())
        scorer.pin()
        model.publish(1010, {A: 1.0})
        family.point(family.names[1])
        wait_until(lambda: other.version == 1010)
        assert (scorer.version, scorer.model) == (1000, family.names[0])
        scorer.unpin()
        wait_until(lambda: scorer.model == family.names[1])
        other.pin(1011)
        for version in (1011, 1012):
            model.publish(version, {A: float(version)})
        wait_until(lambda: holds(other, 1012))
        assert other.version == 1011
        family.pin(family.names[0], family.names[0], 1013)
        wait_until(lambda: obeys(other, 1013))
        assert other.version == 1011
        other.unpin()
        wait_until(lambda: other.version == 1012)
        other.pin()
        for version in (1013, 1014):
            model.publish(version, {A: float(version)})
        other.unpin()
        wait_until(lambda: other.version == 1013)
        wait_until(lambda: holds(other, 1014))
        assert other.version == 1013


def test_the_copy_of_an_alias_is_served_without_brokers_and_given_up_for_what_was_promoted(
    family: Family, tmp_path: Path
) -> None:
    """Without brokers nobody knows where the alias points: the model that was served last is served. With them the
    scorer begins with the copy as well, and goes over to the model that was promoted meanwhile, and keeps that."""
    options: dict[str, Any] = {"state_dir": tmp_path, "copy_every_ms": 1_000}
    copy = tmp_path / f"alias-{family.alias}.copy"
    with family.scorer(**options) as scorer:
        scorer.wait_ready(patience())
        wait_until(copy.exists)
    with Scorer(f"127.0.0.1:{free_port()}", alias=family.alias, **options) as scorer:
        assert scorer.ready and scorer.is_from_copy
        assert scorer.predict(EVENT) == (pytest.approx(family.expected(0)), 1000, family.names[0], 0)
    family.point(family.names[1])
    with family.scorer(**options) as scorer:
        assert scorer.predict(EVENT).model == family.names[0]
        wait_until(lambda: scorer.model == family.names[1])
        assert scorer.predict(EVENT) == (pytest.approx(family.expected(1)), 1001, family.names[1], 0)
        assert not scorer.is_from_copy
        wait_until(lambda: family.names[1].encode() in copy.read_bytes())
    with Scorer(f"127.0.0.1:{free_port()}", alias=family.alias, **options) as scorer:
        assert scorer.predict(EVENT).model == family.names[1]


def test_a_paused_model_is_not_stale(family: Family) -> None:
    """Its age is on purpose; after `resume` it has the usual time for a new version."""
    with family.scorer(stale_after_ms=1_000) as scorer:
        scorer.wait_ready(patience())
        wait_until(lambda: "ago" in scorer.why_stale)
        family.write(Publication(family.names[0], True, "test", 1))
        wait_until(lambda: not scorer.why_stale)
        time.sleep(1.2)  # time is the input: without the pause this would be too long
        assert not scorer.why_stale
        family.write(Publication(family.names[0], False, "test", 2))
        wait_until(lambda: "ago" in scorer.why_stale)


def test_records_that_cannot_be_used(family: Family) -> None:
    """Somebody else's, a later format's, a damaged one: what is served stays, and the next good record counts. One
    that concerns the alias is named in `pending`; one that does not is passed over."""
    world, key = family.models[0].world, b"alias/" + family.alias.encode()
    good = Alias("other", (Change("0" * 16, PROMOTE, "x", 1, None, "y"),))
    with family.scorer() as scorer:
        scorer.wait_ready(patience())
        world.append(family.control, 0, (b"hello", b"world"), (None, b"x"), (good.key, encode(good)))
        for value, words in ((b"nonsense", "not JSON"), (b'{"format":2}', "format 2"), (b'{"format":1}', "has no")):
            world.append(family.control, 0, (key, value))
            wait_until(lambda: words in scorer.pending)  # noqa: B023
            assert f"topic {family.control}, partition 0, offset" in scorer.pending
            assert scorer.ready and scorer.model == family.names[0]
        with family.scorer() as late:
            late.wait_ready(patience())
            assert late.model == family.names[0]
        family.point(family.names[1])
        wait_until(lambda: scorer.model == family.names[1])
        assert scorer.pending == ""


def test_a_control_topic_that_goes_away(family: Family) -> None:
    """What was known goes on to count; a new topic is followed from its beginning."""
    world = family.models[0].world
    with family.scorer() as scorer:
        scorer.wait_ready(patience())
        delete_topics(world.settings.bootstrap, [family.control])
        wait_until(lambda: scorer._watch.problem is not None)
        assert scorer.ready and scorer.predict(EVENT).model == family.names[0]
        world.admin.create([control_plan(world.config)])
        family.point(family.names[1])
        wait_until(lambda: scorer.model == family.names[1])


def test_promotions_side_by_side_are_all_recorded(make_world: MakeWorld) -> None:
    """Several at the same moment: one of them counts, and the history that is left has every one."""
    family = Family(make_world, 1)
    names = [f"{family.alias}-m{k}" for k in range(6)]
    controls = [ControlTopic(family._settings, family.control) for _ in names]
    threads = [
        threading.Thread(target=family.point, args=(name,), kwargs={"topic": control})
        for name, control in zip(names, controls, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    state = ControlTopic(family._settings, family.control).state
    last = state.latest[b"alias/" + family.alias.encode()]
    assert isinstance(last, Alias)
    assert sorted(str(change.to_model) for change in last.history) == names
    assert last == state.aliases[family.alias]
    family.close()
