"""Predictions through the `Scorer`, from JSON as an ad server has it: one event, and many.

39 features, about 600 bytes of JSON; the model has a weight for every feature of the benchmark's traffic and is
published to a real Kafka first. One event a call: time of each call. Many: events a second on one thread.
"""

from __future__ import annotations

import tempfile
import time
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
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.core.warmup import compile_kernels
from stream_learner.roles.learner.publication import Publication
from stream_learner.roles.scorer.scorer import Scorer
from stream_learner.traffic.benchmark import benchmark_impressions

BATCH = 1_000


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: one event from bytes and from a dictionary, many from bytes."""
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
            return [*_one(scorer, texts[:20_000], note), _many(scorer, texts, note)]


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


def _many(scorer: Scorer, texts: list[bytes], note: str) -> dict[str, Any]:
    began = time.perf_counter()
    for start in range(0, len(texts), BATCH):
        scorer.predict_many(texts[start : start + BATCH])
    rate = len(texts) / (time.perf_counter() - began)
    note = f"{note}, {BATCH} a call"
    return {"name": "predict many from bytes", "value": round(rate), "unit": "events/s", "note": note}
