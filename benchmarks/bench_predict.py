"""Predictions through the `Scorer`, from JSON as an ad server has it: one event, many; beside Vowpal Wabbit and River.

39 features, about 600 bytes of JSON; the model has a weight for every feature of the benchmark's traffic and is
published to a real Kafka first. One event a call: time of each call, and CPU time of the calls beside those of the
peers, in turn. They parse JSON by orjson and have learned from some of the events. Many: events a second on one thread.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.bench_loop import Site, kafka
from stream_learner.adapters.kafka import Admin
from stream_learner.core.events.decoders import EventSpec, ImpressionDecoder
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.model.table.rows import StateRows
from stream_learner.core.parts import compile_kernels
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.roles.learner.publication import Publication
from stream_learner.roles.scorer.scorer import Scorer
from stream_learner.traffic.benchmark import benchmark_impressions

BATCH = 1_000
ROUNDS = 7
LEARNED = 2_000
"""Events that the peers learn from; they predict others of the same traffic."""

Ask = Callable[[Any], object]


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: one event from bytes and from a dictionary, with the times of the peers to ours; many from bytes."""
    compile_kernels()
    events = 20_000 if quick else 200_000
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
        site = Site(bootstrap, Path(folder))
        data, bounds = benchmark_impressions(events)
        weights = _publish(site, data, bounds)
        texts = [data[bounds[i] : bounds[i + 1]] for i in range(events)]
        with Scorer(bootstrap, site.model) as scorer:
            scorer.wait_ready(60)
            note = f"{weights} weights, one thread"
            one = [*_one(scorer, texts[:20_000], note), *_side_by_side(scorer, texts[: 2 * LEARNED])]
            return [*one, *_many(scorer, texts, note)]


def _publish(site: Site, data: bytes, bounds: np.ndarray) -> int:
    """Publish a model that has a weight for every feature of the events; how many it has."""
    decoder = ImpressionDecoder(EventSpec(), site.config.feature_spec())
    keys = np.unique(decoder.decode(data, bounds, np.zeros(len(bounds) - 1, np.int64)).keys)
    learner = Learner(FtrlProximal())
    columns = np.column_stack((np.random.default_rng(1).normal(0, 3, len(keys)), np.full(len(keys), 9.0)))
    learner.examples = len(bounds) - 1
    learner.table.load(StateRows(keys, columns, np.zeros(len(keys), np.int64)))
    snapshots = site.config.snapshots
    publication = Publication(
        site.settings,
        Admin(site.settings).offsets,
        topic=site.config.snapshots_topic,
        transactional_id=site.model,
        shards=snapshots.shards,
        policy=PagePolicy(page_bytes=snapshots.page_bytes, ring=snapshots.ring),
        learner=learner,
    )
    publication.begin()
    inputs = {"ignored_fields": list(EventSpec().paths())}
    content = {"name": site.model, "tick_ms": 1000, "features": site.config.feature_spec().to_dict()}
    publication.publish(1, -1, {**content, "optimizer": learner.optimizer.to_dict(), "inputs": inputs, "metrics": {}})
    publication.close()
    return len(keys)


def _one(scorer: Scorer, texts: list[bytes], note: str) -> list[dict[str, Any]]:
    dicts = [orjson.loads(text) for text in texts]
    rows = []
    for kind, events in (("bytes", texts), ("a dictionary", dicts)):
        taken = np.empty(len(events))
        for i, event in enumerate(events):
            began = time.perf_counter_ns()
            scorer.predict(event)
            taken[i] = (time.perf_counter_ns() - began) / 1000
        for q in (50, 99):
            value = round(float(np.percentile(taken, q)), 1)
            rows.append({"name": f"predict one from {kind}, p{q}", "value": value, "unit": "µs", "note": note})
    return rows


def _side_by_side(scorer: Scorer, texts: list[bytes]) -> Iterator[dict[str, Any]]:
    """CPU time of one prediction by each, in turn, and how many times ours the peers take."""
    learned, asked = texts[:LEARNED], texts[LEARNED:]
    events = {"bytes": asked, "a dictionary": [orjson.loads(text) for text in asked]}
    askers: dict[str, Ask] = {"ours": scorer.predict}
    for name, make in (("vowpalwabbit", _vw), ("river", _river)):
        if importlib.util.find_spec(name):
            askers[name] = make([orjson.loads(text) for text in learned])
    note = f"CPU time, median of {ROUNDS} rounds in turn"
    for kind, given in events.items():
        spent: dict[str, list[float]] = {name: [] for name in askers}
        for _ in range(ROUNDS):
            for name, ask in askers.items():
                spent[name].append(_each_us(ask, given))
        each = {name: statistics.median(times) for name, times in spent.items()}
        for name, value in each.items():
            yield {"name": f"predict one from {kind}, {name}", "value": round(value, 2), "unit": "µs", "note": note}
        for name in askers.keys() - {"ours"}:
            ratio = round(each[name] / each["ours"], 1)
            yield {
                "name": f"predict one from {kind}, times {name}",
                "value": ratio,
                "unit": "x",
                "note": f"{name} / ours",
            }


def _each_us(ask: Ask, events: list[Any]) -> float:
    began_ns = time.thread_time_ns()
    for event in events:
        ask(event)
    return (time.thread_time_ns() - began_ns) / len(events) / 1000


def _vw(learned: list[dict[str, Any]]) -> Ask:
    """Vowpal Wabbit's `--ftrl` with 2^22 weights; an event becomes a line of its text."""
    workspace = importlib.import_module("vowpalwabbit").Workspace("--ftrl --loss_function logistic -b 22 --quiet")

    def line(event: dict[str, Any]) -> str:
        return "|f " + " ".join([f"{name}={value}" for name, value in event.items() if name != "id"])

    for place, event in enumerate(learned):
        workspace.learn(f"{1 if place % 20 == 0 else -1} {line(event)}")

    def ask(event: bytes | dict[str, Any]) -> object:
        return workspace.predict(line(orjson.loads(event) if isinstance(event, bytes) else event))

    return ask


def _river(learned: list[dict[str, Any]]) -> Ask:
    """River's logistic regression with FTRL-Proximal; an event becomes a dictionary of names."""
    from river import linear_model, optim

    model = linear_model.LogisticRegression(optim.FTRLProximal())

    def names(event: dict[str, Any]) -> dict[str, float]:
        return dict.fromkeys([f"{name}={value}" for name, value in event.items() if name != "id"], 1.0)

    for place, event in enumerate(learned):
        model.learn_one(names(event), place % 20 == 0)

    def ask(event: bytes | dict[str, Any]) -> object:
        return model.predict_proba_one(names(orjson.loads(event) if isinstance(event, bytes) else event))

    return ask


def _many(scorer: Scorer, texts: list[bytes], note: str) -> list[dict[str, Any]]:
    began, began_cpu = time.perf_counter(), time.thread_time()
    for start in range(0, len(texts), BATCH):
        scorer.predict_many(texts[start : start + BATCH])
    spent_s, cpu_s = time.perf_counter() - began, time.thread_time() - began_cpu
    note = f"{note}, {BATCH} a call"
    return [
        {"name": "predict many from bytes", "value": round(len(texts) / spent_s), "unit": "events/s", "note": note},
        {
            "name": "predict many from bytes, CPU",
            "value": round(len(texts) / cpu_s),
            "unit": "events/s",
            "note": f"{note}, CPU time of its thread",
        },
    ]
