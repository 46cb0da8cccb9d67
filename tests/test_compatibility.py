"""`docs/compatibility.md` names the versions that the code writes and reads, and tests that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stream_learner.adapters.kafka.library import TRIED
from stream_learner.adapters.rocksdb.store import STORE_FORMAT
from stream_learner.core.control.records import FORMAT as CONTROL_FORMAT
from stream_learner.core.errors import NewerVersion, RecordError
from stream_learner.core.events.feature_keys import KEY_RULES, NEWEST_RULE
from stream_learner.core.log.header import COUNTED, VERSION, VERSION_OF, Kind, RecordHeader, open_record, seal
from stream_learner.core.snapshots.checkpoint_copy import COPY_FORMAT
from stream_learner.core.snapshots.records import FORMAT_VERSION
from stream_learner.core.snapshots.replica_copy import FORMAT_VERSION as COPY_VERSION
from stream_learner.evaluate.model_file import VERSION as MODEL_FILE_VERSION
from tests.chart.test_manifests import VERSIONS
from tests.kafka_broker.broker import kafka_version

PROJECT = Path(__file__).resolve().parent.parent
PAGE = (PROJECT / "docs" / "compatibility.md").read_text(encoding="utf-8")
OF_ONE_VERSION = {
    "snapshots and pieces of checkpoints": FORMAT_VERSION,
    "state directory": STORE_FORMAT,
    "heads of copied checkpoints": COPY_FORMAT,
    "scorer's copy of a version": COPY_VERSION,
    "control topic": CONTROL_FORMAT,
    "`evaluate --save`": MODEL_FILE_VERSION,
}
NAMES = {Kind.EXAMPLES: "log: examples", Kind.MARK: "log: marks", Kind.CODES: "log: codes", Kind.SKIP: "log: skips"}


def formats() -> dict[str, tuple[list[int], list[int]]]:
    """By record, the versions that the table says are written and read."""
    table = PAGE.split("<!-- formats -->")[1].split("<!-- /formats -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    return {
        row[0]: ([int(n) for n in re.findall(r"\d+", row[1])], [int(n) for n in re.findall(r"\d+", row[2])])
        for row in rows
    }


def readable(kind: Kind) -> Iterator[int]:
    """The versions in which a record of the log can be opened, and one beyond the last cannot."""
    for version in range(1, VERSION + 2):
        try:
            open_record(seal(RecordHeader(kind, 0, 0, 0, 1, 0, version), bytes(8)))
        except (NewerVersion, RecordError):
            continue
        yield version


def test_every_format_has_a_row_with_its_versions() -> None:
    """Whoever changes a version says so here, where a site that upgrades looks."""
    wanted = {name: ([version], [version]) for name, version in OF_ONE_VERSION.items()}
    for kind, name in NAMES.items():
        written = [VERSION_OF[kind], *([COUNTED] if kind is Kind.EXAMPLES else [])]
        wanted[name] = (written, [*readable(kind)])
    wanted["key rule of features"] = ([NEWEST_RULE], [*KEY_RULES])
    assert formats() == wanted


def test_every_folder_of_golden_files_is_named() -> None:
    """And what is named as a test is there."""
    named = set(re.findall(r"`(tests/[\w/.]+)`", PAGE))
    assert {f"tests/golden/{path.name}" for path in (PROJECT / "tests" / "golden").glob("*_v*")} <= named
    assert [name for name in sorted(named) if not (PROJECT / name).exists()] == []


def test_what_was_run_is_what_the_tests_take() -> None:
    """Brokers, the Kafka client and Kubernetes by the numbers that are pinned."""
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in PAGE.splitlines() if line.startswith("| ")}
    assert f"Apache Kafka {kafka_version()}:" in rows["brokers"]
    assert all(f"librdkafka {version} " in rows["Kafka client"] for version in TRIED)
    assert all(version.rpartition(".")[0] in rows["Kubernetes"] for version in VERSIONS)
