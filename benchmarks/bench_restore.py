"""A learner's state from an empty disk, and what copies of checkpoints cost: on a Kafka of one broker."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan, TransactionalPublisher
from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.table.rows import StateRows
from stream_learner.core.parts import FOLD, compile_parts
from stream_learner.operations.topics import plans
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.copies.writer import CopyWriter, WrittenCopy
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from stream_learner.roles.learner.recovery import Recovery
from tests.kafka_broker.broker import Broker

ROW_BYTES = 32
COPIES = 4

Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """Rows of name, value, unit and note."""
    configure_logging(log_format="console", log_level="warning")
    compile_parts([FOLD])
    broker = Broker().start()
    try:
        rows = _at(broker.bootstrap, "1m", 1_000_000)
        return rows if quick else rows + _at(broker.bootstrap, "10m", 10_000_000)
    finally:
        broker.stop()


def _at(bootstrap: str, name: str, features: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-restore-") as folder:
        model = _Model(bootstrap, Path(folder))
        rng = np.random.default_rng(13)
        keys = np.unique(rng.integers(1, 2**64, features, dtype=np.uint64))
        note = f"{len(keys):,} features, two columns, {model.config.snapshots.shards} shards"
        rows = model.copies(name, note, keys, rng)
        shutil.rmtree(model.config.state_dir)
        seconds = model.restore(len(keys))
        rows.append(_row(f"restore_{name}", seconds, "s", f"{note}, empty disk: read, write, load, check the digest"))
        rows.append(_row(f"restore_rate_{name}", len(keys) / seconds, "features/s", f"{note}, the same"))
        return rows


class _Model:
    """A model whose rows are given, its topics made."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.config = Config.model_validate(
            {
                "model": f"bench-{uuid.uuid4().hex[:8]}",
                "kafka": {"bootstrap.servers": bootstrap},
                "input": {"impressions": {"topic": "impressions"}, "clicks": {"topic": "clicks"}},
                "learner": {"state_dir": str(folder / "state")},
            }
        )
        self.settings = KafkaSettings(self.config.kafka_options(), group="bench")
        self.admin = Admin(self.settings)
        log = TopicPlan(self.config.examples_topic, 1)
        copies = [plan for plan in plans(self.config, 1) if plan.name == self.config.checkpoints_topic]
        self.admin.ensure([log, *copies], create=True)
        places = [(plan.name, partition) for plan in (log, *copies) for partition in range(plan.partitions)]
        while self.admin.offsets.high_watermarks_known(places)[1]:
            time.sleep(0.05)
        self.log = self.admin.require([log.name])[log.name]

    def learner(self) -> Learner:
        return Learner(self.config.optimizer(), loss=self.config.loss())

    def copies(self, name: str, note: str, keys: np.ndarray, rng: np.random.Generator) -> list[Row]:
        """The first copy and later ones, each after a checkpoint of a hundredth of the rows."""
        learner = self.learner()
        columns, touched = rng.random((len(keys), 2)), np.zeros(len(keys), np.int64)
        learner.table.expect(len(keys))
        learner.table.load(StateRows(keys, columns, touched))
        learner.table.restart_changes(-1, -1)
        checkpoints = Checkpoints(self.config, learner, self.log)
        copy_writer = CopyWriter(
            self.settings,
            self.admin,
            checkpoints.store,
            topic=self.config.checkpoints_topic,
            new_publisher=partial(TransactionalPublisher, self.settings, self.config.copier_id),
        )
        copy_writer.begin()
        try:
            first = self._copy(checkpoints, copy_writer, 1)
            later = []
            changed = max(1, len(keys) // 100)
            for tick in range(2, 2 + COPIES):
                chosen = np.sort(rng.choice(len(keys), changed, replace=False))
                _change(learner, keys[chosen], tick)
                later.append(self._copy(checkpoints, copy_writer, tick))
        finally:
            copy_writer.close()
            checkpoints.close()
        return _cost(name, note, first, later, changed * ROW_BYTES)

    def _copy(self, checkpoints: Checkpoints, copy_writer: CopyWriter, tick: int) -> tuple[WrittenCopy, float, float]:
        """Checkpoint, then copy: what was copied, the seconds it took, and those of a core."""
        checkpoints.begin(tick, {0: LOG_BEGINNING})
        checkpoints.finish()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        copied = copy_writer.copy()
        if copied is None:
            raise RuntimeError("the copy was left off")
        return copied, time.perf_counter() - began_s, time.process_time() - cpu_s

    def restore(self, features: int) -> float:
        """Seconds from an empty disk to a learner that has its state."""
        log, metrics = get_logger("learner"), Metrics(self.config.model)
        began_s = time.perf_counter()
        recovery = Recovery(self.config, self.settings, self.admin, self.log, self.learner, metrics, log)
        checkpoints, _ = recovery.run()
        seconds = time.perf_counter() - began_s
        count = checkpoints.learner.table.count
        checkpoints.close()
        if count != features:
            raise RuntimeError(f"{count} features were restored, not {features}")
        return seconds


def _change(learner: Learner, keys: np.ndarray, tick: int) -> None:
    """Give rows that are there other columns, as the fold of a tick does."""
    rows = learner.table.rows_of(keys)
    learner.table.load(StateRows(keys, rows.columns + 1.0, np.full(len(keys), tick, np.int64)))
    learner.table.restart_changes(tick - 1, tick - 1)


def _cost(
    name: str,
    note: str,
    first: tuple[WrittenCopy, float, float],
    later: list[tuple[WrittenCopy, float, float]],
    changed_bytes: int,
) -> list[Row]:
    copied, seconds, cpu_s = first
    sent = float(np.median([copy.size_bytes for copy, _, _ in later]))
    each_s, each_cpu_s = (float(np.median([row[at] for row in later])) for at in (1, 2))
    hundredth = f"{note}, a hundredth of them changed; median of {len(later)}"
    return [
        _row(f"first_copy_{name}", copied.size_bytes / seconds / 1e6, "MB/s", f"{note}, all pieces, no limit"),
        _row(f"first_copy_core_{name}", cpu_s / copied.size_bytes * 1e9, "ms of a core/MB", f"{note}, all threads"),
        _row(f"copy_seconds_{name}", each_s, "s", hundredth),
        _row(f"copy_core_{name}", each_cpu_s / 60.0 * 100, "% of a core", f"{hundredth}, with one copy a minute"),
        _row(f"copy_bytes_{name}", sent / changed_bytes, "bytes/byte changed", hundredth),
    ]


def _row(name: str, value: float, unit: str, note: str) -> Row:
    return {"name": name, "value": value, "unit": unit, "note": note}
