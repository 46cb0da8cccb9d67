"""What the tests of the image share: the image, and what was measured of it.

It must never let a test pass or be skipped because the image cannot be built: it fails with what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.image.builder import Image, NoBuilder, built
from tests.image.container import Containers

BUILD_S = 1_800
"""How long a test may wait for the build: six minutes of a processor, more where others share it."""
Measured = Callable[[str], None]
_LINES: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test of the image comes first builds it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(BUILD_S))


@pytest.fixture(scope="session")
def measured() -> Measured:
    """Takes lines for the summary of the test run."""
    return _LINES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was built and measured."""
    if _LINES:
        terminalreporter.section("image")
        for line in _LINES:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def image(measured: Measured) -> Iterator[Image]:
    """The image, built from the Dockerfile."""
    try:
        with built() as image:
            kind = "a stand-in made with debootstrap: no registry can be reached" if image.stand_in else "as published"
            measured(f"base: {image.base} ({kind})")
            yield image
    except NoBuilder as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def containers(image: Image, tmp_path: Path) -> Containers:
    """Containers of a user that no image knows, without a configuration."""
    return Containers(image, tmp_path)
