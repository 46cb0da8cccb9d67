"""What the tests of the server share: a model whose weights are known, and a server of it.

It must never leave a topic behind on a broker that is not its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_learner import Scorer
from stream_learner.core.machine.hashing import BIAS_KEY, hash_texts
from tests.cli_e2e.conftest import MakeWorld, _kernels, make_world
from tests.cli_e2e.published import Published
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience

__all__ = ["_kernels", "make_world"]

WEIGHTS = dict(zip([BIAS_KEY, *hash_texts([b"site=a", b"site=b", b"x"])], [-1.0, 0.5, -2.0, 0.25], strict=True))


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
