"""What the tests of docs/deploy.md share: compiled kernels, and a Helm to render with.

Where a broker or Helm cannot run, they fail with what to install. It must never use a broker that was given from
outside: its users and rights are changed.
"""

from __future__ import annotations

import pytest

from stream_learner.core.parts import compile_kernels
from tools.get_helm import NoHelm, helm


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    """Kernels are compiled, so that no process waits for them; Helm is there."""
    compile_kernels()
    try:
        helm()
    except NoHelm as error:
        pytest.fail(str(error), pytrace=False)
