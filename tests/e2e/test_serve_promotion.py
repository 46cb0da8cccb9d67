"""A promotion and a rollback under 500 requests a second over HTTP: no request fails, none is answered by a mixture."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from stream_learner.operations.promote.checks import PromotionRequest
from stream_learner.operations.promote.run import promote, rollback
from tests.cli_e2e.published import Published, p_click
from tests.cli_e2e.world import World
from tests.kafka_broker.broker import delete_topics
from tests.roles.scorer.serve.running import serve_command
from tests.waiting import patience, wait_until

RATE, THREADS = 500, 8
(SITE,) = hash_texts([b"site=a"])
BODY = json.dumps({"instances": [{"site": "a"}] * 3}).encode()
Answer = tuple[str, int, list[float]]


class Model:
    """A model whose prediction of one event is known for every version."""

    def __init__(self, world: World, sign: float) -> None:
        self.name = world.model
        self.published = Published(world)
        self._sign = sign
        self.expected: dict[int, float] = {}

    def publish(self, version: int) -> None:
        """One more version."""
        weights = {BIAS_KEY: self._sign, SITE: self._sign * version / 100}
        self.expected[version] = p_click(weights, [BIAS_KEY, SITE])
        self.published.publish(version, weights)


class Load:
    """Requests at a steady rate on connections that are kept; every answer, and whatever is none."""

    def __init__(self, port: int, path: str) -> None:
        self.answers: list[Answer] = []
        self.failures: list[str] = []
        self._port, self._path = port, path
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(THREADS)]

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=patience(10))
        due_s = time.monotonic()  # the pace of the requests is the input
        while not self._stop.is_set():
            try:
                connection.request("POST", self._path, BODY)
                found = connection.getresponse()
                text = found.read()
                if found.status != 200:
                    self.failures.append(text.decode())
                else:
                    answer = json.loads(text)
                    self.answers.append((answer["model_name"], int(answer["model_version"]), answer["predictions"]))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
            due_s += THREADS / RATE
            time.sleep(max(0.0, due_s - time.monotonic()))
        connection.close()

    def models(self) -> set[str]:
        """The models of the last answers."""
        return {model for model, _, _ in self.answers[-THREADS:]}

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def worlds(kafka: str, tmp_path: Path) -> Iterator[tuple[World, World]]:
    """Two models of one site, with one control topic."""
    first = World(kafka, tmp_path)
    second = World(kafka, tmp_path, topics={"control": first.config.control_topic})
    first.admin.create([TopicPlan(first.config.control_topic, 1, configs={"cleanup.policy": "compact"})])
    yield first, second
    delete_topics(kafka, sorted({*first.topics, *second.topics}))


def test_no_request_fails_and_none_is_answered_by_a_mixture(worlds: tuple[World, World]) -> None:
    """Each answer's predictions are those of the model and the version that it names, while both models go on."""
    old, new = Model(worlds[0], -1.0), Model(worlds[1], 1.0)
    config = worlds[0].config
    stop = threading.Event()
    old.publish(1)
    new.publish(1)

    def publish() -> None:
        version = 1
        while not stop.wait(0.2):
            version += 1
            for model in (old, new):
                model.publish(version)

    promote(config, PromotionRequest("ctr", old.name, "test", forced=True), max_lag_ms=1, tolerance=1.0)
    with serve_command(worlds[0], "serve.aliases=[ctr]") as (_, url):
        publishing = threading.Thread(target=publish)
        publishing.start()
        try:
            with Load(int(url.rpartition(":")[2]), "/v1/models/ctr:predict") as load:
                wait_until(lambda: len(load.answers) > RATE and load.models() == {old.name})
                promote(config, PromotionRequest("ctr", new.name, "test", forced=True), max_lag_ms=1, tolerance=1.0)
                wait_until(lambda: load.models() == {new.name})
                there = len(load.answers)
                wait_until(lambda: len(load.answers) > there + RATE)
                rollback(config, PromotionRequest("ctr", "", "test"))
                wait_until(lambda: load.models() == {old.name})
                back = len(load.answers)
                wait_until(lambda: len(load.answers) > back + RATE)
        finally:
            stop.set()
            publishing.join()
    assert not load.failures
    known = {model.name: model.expected for model in (old, new)}
    for model, version, predictions in load.answers:
        assert predictions == pytest.approx([known[model][version]] * 3, abs=1e-7)
        assert len(set(predictions)) == 1
    for model in known:
        assert len({version for name, version, _ in load.answers if name == model}) > 3
    for one in (old, new):
        one.published.close()
