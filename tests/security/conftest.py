"""What the security tests share: one secured broker, compiled kernels, sites whose roles are users.

It must never use a broker that was given from outside: its users and rights are changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_learner.core.parts import compile_kernels
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site
from tests.kafka_broker.broker import NoKafka
from tests.security.broker import Secured, secured_broker


def pytest_itemcollected(item: pytest.Item) -> None:
    """All of this folder is thorough: a secured broker is dear, and few changes touch what is guarded here."""
    item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compiled before the first test, so that no test waits for them with a role running."""
    compile_kernels()


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker of this folder."""
    try:
        with secured_broker(tmp_path_factory.mktemp("secured")) as found:
            yield found
    except NoKafka as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def make_site(secured: Secured, tmp_path: Path) -> Iterator[MakeSite]:
    """`make_site(scenario)` makes a `Site`, as the super user, in a folder of its own."""
    made: list[Site] = []

    def make(scenario: object, **options: object) -> Site:
        folder = tmp_path / f"site-{len(made)}"
        folder.mkdir()
        made.append(Site(secured.broker.bootstrap, scenario, folder, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture(autouse=True)
def _no_rights_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rights that a test gave are gone after it."""
    yield
    if "secured" in request.fixturenames:
        found: Secured = request.getfixturevalue("secured")
        found.forbid_all()
