"""pytest's hooks of this project: the measure of the machine, the shared broker, the order of the files, the results.

In: what pytest collects, and the results of tests. Out: the same, long files first; a line of JSON for each result
where `RESULTS` names a file. `tests/conftest.py` takes these hooks in.
"""

from __future__ import annotations

import gc
import json
import os
import resource
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka_broker.broker import PLACE, place_for_tests
from tests.kafka_broker.lender import Lender
from tests.suite.times import seconds_by_file
from tests.waiting import SLOWNESS, patience, slowness

RESULTS = "TEST_RESULTS"
"""The variable that names the file of results."""
OF_ONE_PROCESS = ("tests/security/",)
"""Folders whose session fixtures cost more than running their files side by side would save."""
BOOTSTRAP_S = 5.0
"""How long a broker that is given may take to answer, on an idle machine."""
SUMMARY_CHARACTERS = 1_000
_lender = pytest.StashKey[Lender]()
_scheduler = pytest.StashKey[Any]()
_reported: set[str] = set()
"""The tests of which this process has heard."""
_cpu_s = 0.0
"""Processor time of this process, and of the children that it has waited for, up to the last report."""


def is_director(config: pytest.Config) -> bool:
    """Whether this process directs others that run the tests."""
    return bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """Measure the machine once for all processes of the run, and lend them a broker."""
    config.addinivalue_line("markers", "thorough: takes long and guards what few changes touch; see tests/suite")
    config.addinivalue_line("markers", "nightly: more of the same, or takes minutes; a nightly run has the time")
    os.environ.setdefault(SLOWNESS, f"{slowness():.2f}")
    os.environ.setdefault(PLACE, str(place_for_tests()))
    if not hasattr(config, "workerinput"):
        refuse_dead_bootstrap()
    if is_director(config):
        config.stash[_lender] = Lender()


def refuse_dead_bootstrap() -> None:
    """End the run with one line, before any test, where `KAFKA_BOOTSTRAP` is set and nobody answers there."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if not given:
        return
    try:
        AdminClient({"bootstrap.servers": given, "log_level": 0}).list_topics(timeout=patience(BOOTSTRAP_S))
    except KafkaException as error:
        why = f"KAFKA_BOOTSTRAP={given}: no broker answers ({error.args[0].str()})"
        raise pytest.UsageError(f"{why}; start it, or unset the variable to have the tests start one") from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the broker down."""
    lender = config.stash.get(_lender, None)
    if lender is not None:
        lender.close()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if the broker that all tests share ended by itself, or if tests were left out."""
    lender = session.config.stash.get(_lender, None)
    ended = lender.log_if_ended() if lender is not None else ""
    if ended:
        write_result({"id": "the broker of all tests", "when": "call", "outcome": "failed", "error": ended})
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    scheduler = session.config.stash.get(_scheduler, None)
    never_ran = sorted(set(scheduler.collection or ()) - _reported) if scheduler is not None else []
    if never_ran and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        what = f"{len(never_ran)} tests that never ran"
        write_result({"id": what, "when": "collect", "outcome": "failed", "error": "\n".join(never_ran)})
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what one process runs and takes longest first, so that no process is left with it at the end."""
    seconds: dict[str, float] = defaultdict(float)
    for file, of_file in seconds_by_file().items():
        seconds[unit_of(file)] += of_file
    items.sort(key=lambda item: -seconds[unit_of(item.nodeid)])


def unit_of(nodeid: str) -> str:
    """The unit that one process runs: the test's file, or its folder if that has a broker of its own."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in OF_ONE_PROCESS if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process, and some folders, in the order of the collection.

    A test that takes its process with it has failed, and the rest of its file is run by another one. pytest-xdist would
    give that test to each process in turn, until it gives up with tests that never ran.
    """
    from xdist.scheduler import LoadScopeScheduling

    class LoadUnitScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def remove_node(self, node: Any) -> str | None:
            work = self.assigned_work.pop(node)
            left = [(unit, test) for unit, tests in work.items() for test, done in tests.items() if not done]
            if not left:
                return None
            unit, crashed = left[0]
            work[unit][crashed] = True
            self.workqueue.update({unit: tests for unit, tests in work.items() if not all(tests.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

    config.option.loadscopereorder = False
    config.stash[_scheduler] = LoadUnitScheduling(config, log)
    return config.stash[_scheduler]


def cpu_seconds() -> float:
    """Processor time of this process and of the children that it has waited for, user and system."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep thousands of collected tests out of every search for garbage; then begin to count processor time."""
    global _cpu_s
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        _cpu_s = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the processor time since the last report of this process, and keep the line of a failure short.

    The log of a role is above that line, and must not hide the rest.
    """
    global _cpu_s
    report = yield
    now_s = cpu_seconds()
    report.cpu_s, _cpu_s = round(now_s - _cpu_s, 3), now_s
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and len(crash.message) > SUMMARY_CHARACTERS:
        crash.message = f"{crash.message[:SUMMARY_CHARACTERS]} ..."
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a result, where this process hears of all of them."""
    _reported.add(report.nodeid)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        told = {"id": report.nodeid, "when": report.when, "outcome": report.outcome, "seconds": report.duration}
        told["cpu"] = getattr(report, "cpu_s", 0.0)  # pytest-xdist makes up a report for a process that crashed
        told |= report.user_properties if report.when == "call" else {}
        log = "\n".join(text for _, text in report.sections)
        write_result({**told, "error": report.longreprtext, "log": log} if report.failed else told)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be collected."""
    if report.failed:
        write_result({"id": report.nodeid, "when": "collect", "outcome": "failed", "error": report.longreprtext})


def write_result(result: dict[str, Any]) -> None:
    """Append a result to the file of results, if there is one."""
    path = os.environ.get(RESULTS)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
