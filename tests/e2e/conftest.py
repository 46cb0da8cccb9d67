"""What the end-to-end tests share: sites, each with topics of its own that disappear with the test.

It must never leave a topic behind on a broker that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stream_learner.adapters.kafka import ends
from stream_learner.core.parts import compile_kernels
from tests.e2e.site import Site
from tests.kafka_broker.broker import delete_topics

MakeSite = Callable[..., Site]


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compiled before the first test, so that no test waits for them with a role running."""
    compile_kernels()


@pytest.fixture
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that gives the joiner a clock and moves it: the joiner's thread that asks for the ends of its inputs
    sleeps until the next tick's time by that clock, and nothing tells it that the test has moved it.
    """
    monkeypatch.setattr(ends, "LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def make_site(kafka: str, tmp_path: Path) -> Iterator[MakeSite]:
    """`make_site(scenario, join={"grace": "1s"})` makes a `Site` in a folder of its own."""
    made: list[Site] = []

    def make(scenario: object, **options: object) -> Site:
        folder = tmp_path / f"site-{len(made)}"
        folder.mkdir()
        made.append(Site(kafka, scenario, folder, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for site in made:
        site.close()
    delete_topics(kafka, [topic for site in made for topic in site.topics])
