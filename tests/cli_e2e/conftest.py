"""What the tests of commands share: models with topics of their own, and one that has learned something.

It must never leave a topic behind on a broker that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from stream_learner.core.parts import compile_kernels
from stream_learner.traffic import Emitted
from tests.cli_e2e.commands import Ended, answer_of, started
from tests.cli_e2e.scraped import answer, values_of
from tests.cli_e2e.world import PARTITIONS, World
from tests.kafka_broker.broker import delete_topics
from tests.waiting import wait_for

IMPRESSIONS = 5_000
MakeWorld = Callable[..., World]


@dataclass
class Learned:
    """A model that `run` has learned from 5,000 impressions, and what was seen of that run."""

    world: World
    sent: Emitted
    metrics: str
    answers: dict[str, tuple[int, str]]
    ended: Ended


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compiled before the first command, so that none of them waits for it."""
    compile_kernels()


@pytest.fixture(scope="session")
def make_world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeWorld]:
    """`make_world(join={"tick": "1s"})` makes a `World` in a folder of its own."""
    made: list[World] = []

    def make(**sections: object) -> World:
        made.append(World(kafka, tmp_path_factory.mktemp("model"), **sections))  # type: ignore[arg-type]
        return made[-1]

    yield make
    delete_topics(kafka, {topic for world in made for topic in world.topics})


@pytest.fixture(scope="session")
def learned(make_world: MakeWorld) -> Learned:
    """Topics made, traffic produced, `run` until all of it is learned and published, then SIGTERM."""
    return learn(make_world())


def learn(world: World) -> Learned:
    """The life of a model, from its topics to the end of its first run."""
    assert answer_of("topics", "ensure", "-c", world.file, "--partitions", str(PARTITIONS)).code == 0
    sent = world.produce(IMPRESSIONS)
    with started("run", "-c", world.file, "--set", f"telemetry.http_port={world.port}") as command:
        command.wait_for("learner_started")
        text = _wait_until_learned(world.port, sent)
        answers = {path: answer(world.port, path) for path in ("/healthz", "/readyz", "/nothing")}
        ended = command.stop()
    return Learned(world, sent, text, answers, ended)


def _wait_until_learned(port: int, sent: Emitted) -> str:
    """The metrics once every record sent has an outcome, and every example has been folded."""

    def learned() -> str | None:
        text = answer(port, "/metrics")[1]
        values = values_of(text)
        final = [sum(v for (name, _), v in values.items() if name == f"joiner_{side}_total") for side in _SIDES]
        examples = values.get(("joiner_impressions_total", "example"), -1)
        all_joined = final == [sent.impression_records, sent.click_records]
        return text if all_joined and examples == values.get(("learner_examples_total", "")) else None

    return wait_for(learned, lambda: f"{sent} sent, but {answer(port, '/metrics')[1]}", look_s=0.1)


_SIDES = ("impressions", "clicks")
