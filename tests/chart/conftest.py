"""What the tests of the chart share: a Helm to render it with.

It must never let a test pass or be skipped because there is no Helm: it fails with what to install.
"""

from __future__ import annotations

import pytest

from tools.get_helm import NoHelm, helm


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    """Helm is there before the first test."""
    try:
        helm()
    except NoHelm as error:
        pytest.fail(str(error), pytrace=False)
