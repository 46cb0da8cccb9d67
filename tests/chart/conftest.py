"""What the tests of the chart share: a Helm to render it with.

It must never let a test pass or be skipped because there is no Helm: it fails with what to install.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.get_helm import NoHelm, helm

GO = {"GOGC": "off", "GOMEMLIMIT": "512MiB"}
"""Helm and promtool end before they need that much: to collect their garbage would be a third of their work."""


@pytest.fixture(scope="session", autouse=True)
def _helm() -> Iterator[None]:
    """Helm is there before the first test."""
    try:
        helm()
    except NoHelm as error:
        pytest.fail(str(error), pytrace=False)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in GO.items():
            patch.setenv(name, value)
        yield
