"""The tests that guard one folder or file of the package: `make test ARGS=stream_learner/core/join`.

In: a path below `stream_learner`. Out: paths for pytest. The first is where `tests` mirrors the package; `ALSO` has
what else soon notices a mistake there. A ring takes about a minute, and is no substitute for `make test`.
"""

from __future__ import annotations

from pathlib import Path

from tests.suite.times import PROJECT

PACKAGE = "stream_learner"
LOOP = "tests/e2e/test_loop.py"
ALSO = {
    "adapters/kafka": ("tests/contract",),
    "cli": ("tests/cli_e2e/test_help.py", "tests/test_docs.py", "tests/test_readme.py"),
    "config": ("tests/test_docs.py",),
    "core/control": ("tests/e2e/test_promotion.py",),
    "core/events": ("tests/fuzz/test_found.py", LOOP),
    "core/gate": ("tests/roles/learner/test_publication_gate.py", "tests/e2e/test_publication_gate.py"),
    "core/join": ("tests/simulation/test_stream_worlds.py", LOOP),
    "core/log": ("tests/simulation/test_simulation.py", LOOP),
    "core/model": ("tests/oracles/test_oracle_model.py", LOOP),
    "core/snapshots": ("tests/e2e/test_publication.py",),
    "errors.py": ("tests/test_docs.py", "tests/test_runbook.py"),
    "operations/doctor": ("tests/cli_e2e/test_first_day.py",),
    "roles/joiner": ("tests/simulation/test_simulation.py", "tests/e2e/test_joiners.py", LOOP),
    "roles/learner": ("tests/e2e/test_publication.py", LOOP),
    "roles/scorer": ("tests/cli_e2e/test_scorer.py",),
    "wording.py": ("tests/test_wording.py",),
}
"""What guards a folder beside its mirror, by the folder's path in the package."""


def ring_of(path: str, project: Path = PROJECT) -> list[str]:
    """The tests that guard a path of the package; any other argument as it is. ValueError where none guards it."""
    parts = Path(path).parts
    if not parts or parts[0] != PACKAGE:
        return [path]
    if not (project / path).exists():
        raise ValueError(f"there is no {path}")
    above = [Path(*parts[1:end]) for end in range(len(parts), 1, -1)]
    mirrors = [f"tests/{one.as_posix()}" for one in above if (project / "tests" / one).is_dir()]
    also = [test for one in above for test in ALSO.get(one.as_posix(), ())]
    found = [*mirrors[:1], *also]
    if not found:
        raise ValueError(f"no ring of tests is known for {path}: run all of them, or name some (tests/suite/rings.py)")
    return found
