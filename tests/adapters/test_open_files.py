"""The limit of open files is raised; a warning is logged if that is not enough."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from stream_learner.adapters import open_files
from stream_learner.adapters.telemetry.logs import configure_logging, get_logger
configure_logging(log_format="json", stream=sys.stdout)
enough = open_files.expect({files}, "the connections of this test", get_logger("joiner"))
print(enough, resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def run(soft: int, hard: int, files: int) -> str:
    """The log of a process with these limits that expects to open these files."""
    program = textwrap.dedent(PROGRAM).format(soft=soft, hard=hard, files=files)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_the_soft_limit_is_raised_to_the_hard_one_without_a_word() -> None:
    """If the hard limit is enough, nothing is logged."""
    assert run(64, 1000, 500).splitlines() == ["True (1000, 1000)"]


def test_a_limit_that_is_too_low_is_said_with_what_to_do() -> None:
    """The line names what is allowed, what is needed and for what, and what to do."""
    line, result = run(64, 256, 500).splitlines()
    assert result == "False (256, 256)"
    for words in ("open_files_too_few", '"allowed":256', '"needed":628', "connections of this test", "LimitNOFILE"):
        assert words in line.replace('": ', '":')
