"""A model of any size without its traffic: rows at random, as a checkpoint on disk and as a copy in Kafka.

The learner of that state has read nothing of its training log. It must never be used for a model that somebody wants.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from stream_learner.adapters.kafka import Admin, KafkaSettings, TransactionalPublisher
from stream_learner.config import Config
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.table.rows import StateRows
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.copies.writer import CopyWriter
from stream_learner.roles.learner.log_follower import LOG_BEGINNING


def fill(config: Config, settings: KafkaSettings, features: int) -> None:
    """Make the state of a model of so many features, every weight of them other than 0, and copy it."""
    admin = Admin(settings)
    log = admin.require([config.examples_topic])[config.examples_topic]
    checkpoints = Checkpoints(config, _learner(config, features), log)
    copy_writer = CopyWriter(
        settings,
        admin,
        checkpoints.store,
        topic=config.checkpoints_topic,
        new_publisher=partial(TransactionalPublisher, settings, config.copier_id),
    )
    copy_writer.begin()
    try:
        checkpoints.begin(0, dict.fromkeys(range(log.partitions), LOG_BEGINNING))
        checkpoints.finish()
        if copy_writer.copy() is None:
            raise RuntimeError("the copy was left off")
    finally:
        copy_writer.close()
        checkpoints.close()


def _learner(config: Config, features: int) -> Learner:
    rng = np.random.default_rng(13)
    keys = np.unique(rng.integers(1, 2**64, features, dtype=np.uint64))
    learner = Learner(config.optimizer(), loss=config.loss())
    columns = rng.uniform(4.0, 8.0, (len(keys), len(learner.optimizer.columns)))
    learner.table.expect(len(keys))
    learner.table.load(StateRows(keys, columns, np.zeros(len(keys), np.int64)))
    learner.table.restart_changes(-1, -1)
    return learner
