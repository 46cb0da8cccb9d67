"""What the tests of the server share: a model whose weights are known, and a server of it.

It must never leave a topic behind on a broker that is not its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_learner import Scorer
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from stream_learner.core.parts import compile_kernels
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.world import World
from tests.kafka_broker.broker import delete_topics
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience

WEIGHTS = dict(zip([BIAS_KEY, *hash_texts([b"site=a", b"site=b", b"x"])], [-1.0, 0.5, -2.0, 0.25], strict=True))


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compiled before the first server, so that none of them waits for it."""
    compile_kernels()


@pytest.fixture(scope="session")
def make_world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeWorld]:
    """`make_world(join={"tick": "1s"})` makes a `World` in a folder of its own."""
    made: list[World] = []

    def make(**sections: object) -> World:
        made.append(World(kafka, tmp_path_factory.mktemp("model"), **sections))  # type: ignore[arg-type]
        return made[-1]

    yield make
    delete_topics(kafka, [topic for world in made for topic in world.topics])


@pytest.fixture(scope="session")
def published(make_world: MakeWorld) -> Iterator[Published]:
    """A model whose version is 1000 and whose weights are known."""
    published = Published(make_world(scorer={"stale_after": None}, features={"fields": {"x": {"kind": "number"}}}))
    published.publish(1000, WEIGHTS)
    yield published
    published.close()


@pytest.fixture(scope="session")
def server(published: Published) -> Iterator[Server]:
    """A server of that model, ready, with the usual limits."""
    with serving(config_of(published.world)) as server:
        yield server


@pytest.fixture(scope="session")
def scorer(published: Published) -> Iterator[Scorer]:
    """The library, with the same model."""
    with Scorer(published.world.settings.bootstrap, published.world.model, stale_after_ms=None) as scorer:
        scorer.wait_ready(patience())
        yield scorer
