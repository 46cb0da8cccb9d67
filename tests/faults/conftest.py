"""What the tests of faults share: sites, each with topics of its own, and what a process says of itself.

The tests that stop a broker have one of their own. It must never stop the broker that other tests use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_learner.core.parts import compile_kernels
from tests.e2e.site import Site
from tests.kafka_broker.broker import Broker, delete_topics

MakeSite = Callable[..., Site]


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compiled before the first test, so that no process compiles them while it is being stopped."""
    compile_kernels()


@contextmanager
def sites(bootstrap: str, folder: Path) -> Iterator[MakeSite]:
    """Makes sites on a broker, with folders of their own."""
    made: list[Site] = []

    def make(scenario: object, **options: object) -> Site:
        place = folder / f"site-{len(made)}"
        place.mkdir()
        json = {"telemetry": {"log_format": "json", **options.pop("telemetry", {})}}  # type: ignore[dict-item]
        made.append(Site(bootstrap, scenario, place, **{**json, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture
def make_site(kafka: str, tmp_path: Path) -> Iterator[MakeSite]:
    """`make_site(scenario, join={"grace": "1s"})` makes a `Site` whose processes log as JSON."""
    with sites(kafka, tmp_path) as make:
        made: list[Site] = []

        def noted(scenario: object, **options: object) -> Site:
            made.append(make(scenario, **options))
            return made[-1]

        yield noted
    delete_topics(kafka, [topic for site in made for topic in site.topics])


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker that may be stopped."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def make_own_site(own_broker: Broker, tmp_path: Path) -> Iterator[MakeSite]:
    """Makes sites as `make_site` does, on the broker that may be stopped."""
    with sites(own_broker.bootstrap, tmp_path) as make:
        yield make
