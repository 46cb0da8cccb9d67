"""The loop as one would write it in Python: orjson, a dictionary, and a learner of another project.

`python -m benchmarks.peers.by_hand vowpal-wabbit|river BOOTSTRAP IMPRESSIONS CLICKS COUNT` joins and learns that many
impressions and prints a line of JSON: seconds and processor time from the first of them to the last one learned,
examples, positives, log-loss. It keeps nothing that outlives the process.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from benchmarks.peers.traffic import END, PARTITIONS, WINDOW_MS

BATCH = 1000
PATIENCE_S = 30.0
ALPHA, BETA, L1, L2 = 0.1, 1.0, 1.0, 1.0
"""FTRL-Proximal's parameters, of all programs."""


class Learner(Protocol):
    """What a learner of another project has to do here."""

    def learn(self, event: dict[str, Any], clicked: bool) -> None:
        """Learn from an event without its id."""

    def log_loss(self) -> float:
        """Mean log-loss of the predictions made before each example was learned."""


class VowpalWabbit:
    """`vw --ftrl` on lines of text, with 2^22 weights."""

    def __init__(self) -> None:
        from vowpalwabbit import Workspace

        self._vw = Workspace(
            f"--ftrl --ftrl_alpha {ALPHA} --ftrl_beta {BETA} --l1 {L1} --l2 {L2} --loss_function logistic -b 22 --quiet"
        )

    def learn(self, event: dict[str, Any], clicked: bool) -> None:
        features = " ".join([f"{name}={value}" for name, value in event.items()])
        self._vw.learn(f"{1 if clicked else -1} |f {features}")

    def log_loss(self) -> float:
        return float(self._vw.get_sum_loss() / self._vw.get_weighted_examples())


class River:
    """River's logistic regression with its FTRL-Proximal. It learns without predicting; its loss is not timed."""

    def __init__(self) -> None:
        from river import linear_model, optim

        optimizer = optim.FTRLProximal(alpha=ALPHA, beta=BETA, l1=L1, l2=L2)
        self._model = linear_model.LogisticRegression(optimizer, intercept_lr=0.0)
        self._loss, self._examples = 0.0, 0
        self.untimed_s = 0.0

    def learn(self, event: dict[str, Any], clicked: bool) -> None:
        features = dict.fromkeys([f"{name}={value}" for name, value in event.items()], 1.0)
        features["bias"] = 1.0
        self._judge(features, clicked)
        self._model.learn_one(features, clicked)

    def _judge(self, features: dict[str, float], clicked: bool) -> None:
        begun_s = time.process_time()
        p_click = min(max(self._model.predict_proba_one(features)[True], 1e-15), 1 - 1e-15)
        self._loss -= math.log(p_click if clicked else 1 - p_click)
        self._examples += 1
        self.untimed_s += time.process_time() - begun_s

    def log_loss(self) -> float:
        return self._loss / self._examples


LEARNERS: dict[str, Callable[[], Any]] = {"vowpal-wabbit": VowpalWabbit, "river": River}


class Join:
    """Impressions wait as bytes for their clicks until both topics have been read past their window."""

    def __init__(self) -> None:
        self._waiting: list[deque[tuple[int, bytes, bytes]]] = [deque() for _ in range(PARTITIONS)]
        self._clicked: dict[bytes, int] = {}
        self._clicks: deque[tuple[int, bytes]] = deque()
        self.impressions_ms = [0] * PARTITIONS
        self.clicks_ms = [0] * PARTITIONS

    def impression(self, record: Message) -> None:
        """Remember an impression."""
        partition, time_ms, id_ = record.partition(), record.timestamp()[1], record.key()
        self.impressions_ms[partition] = time_ms
        if not id_.startswith(END):
            self._waiting[partition].append((time_ms, id_, record.value()))

    def click(self, record: Message) -> None:
        """Remember a click."""
        self.clicks_ms[record.partition()] = time_ms = record.timestamp()[1]
        id_ = record.key()
        self._clicked[id_] = time_ms
        self._clicks.append((time_ms, id_))

    def closed(self) -> Iterator[tuple[bytes, bool]]:
        """The impressions whose windows have closed, and whether each was clicked."""
        now_ms = min(self.impressions_ms + self.clicks_ms)
        for waiting in self._waiting:
            while waiting and waiting[0][0] + WINDOW_MS < now_ms:
                time_ms, id_, value = waiting.popleft()
                clicked_ms = self._clicked.pop(id_, None)
                yield value, clicked_ms is not None and clicked_ms <= time_ms + WINDOW_MS
        while self._clicks and self._clicks[0][0] + WINDOW_MS < now_ms:
            self._clicked.pop(self._clicks.popleft()[1], None)


def main() -> None:
    """Join and learn, and print the figures."""
    name, bootstrap, impressions, clicks, count = *sys.argv[1:5], int(sys.argv[5])
    gc.disable()  # nothing here is in a circle, and looking for circles would cost a tenth
    learner: Any = LEARNERS[name]()
    join = Join()
    shown, clicked = _consumer(bootstrap, impressions), _consumer(bootstrap, clicks)
    batch = shown.consume(BATCH, timeout=PATIENCE_S)
    begun_s, cpu_begun_s = time.monotonic(), time.process_time()
    examples = positives = 0
    while examples < count:
        for record in batch:
            join.impression(record)
        while min(join.clicks_ms) < min(join.impressions_ms):
            for record in _some(clicked):
                join.click(record)
        for value, label in join.closed():
            event = orjson.loads(value)
            del event["id"]
            learner.learn(event, label)
            examples += 1
            positives += label
        if examples < count:
            batch = _some(shown)
    cpu_s = time.process_time() - cpu_begun_s - getattr(learner, "untimed_s", 0.0)
    figures = {"seconds": time.monotonic() - begun_s, "cpu_seconds": cpu_s, "examples": examples}
    print(json.dumps({**figures, "positives": positives, "log_loss": learner.log_loss()}))


def _consumer(bootstrap: str, topic: str) -> Consumer:
    """A reader of all partitions of a topic, from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-hand",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    return consumer


def _some(consumer: Consumer) -> list[Message]:
    """The next records. Raises TimeoutError if none come."""
    batch = consumer.consume(BATCH, timeout=0.1) or consumer.consume(BATCH, timeout=PATIENCE_S)
    if not batch:
        raise TimeoutError(f"no record came for {PATIENCE_S:g} s")
    return batch


if __name__ == "__main__":
    main()
