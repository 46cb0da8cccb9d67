"""`log skip` on a real Kafka: a damaged record that counts stops the roles; with the skip all of them go on alike."""

from __future__ import annotations

import json
import struct

import pytest

from stream_learner.cli import main
from stream_learner.config import Config
from stream_learner.core.log.header import VERSION
from stream_learner.core.log.skips import checksum_of
from stream_learner.errors import DamagedLog, JoinersRun, NotFound, SkipRefused
from stream_learner.operations.audit.request import AuditRequest
from stream_learner.operations.audit.run import audit
from stream_learner.operations.inspect_log import inspect_record, inspect_tick
from stream_learner.operations.log_skip import SkipRequest, log_skip
from tests.e2e.audited import Model
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.e2e.training_log import LogReader
from tests.scenarios import scenario

WHO, WHY = "jane@ops", "a tool wrote here"


@pytest.fixture
def model(make_site: MakeSite) -> Model:
    """A model of one partition, half of whose input is joined."""
    site = make_site(scenario("plain", 1))
    site.produce(0, 0.5)
    with running(site.joiner()):
        wait_until(lambda: site.last_tick() >= site.tick_closed_by(0.5), "half of it is joined")
    return Model(site)


def request(offset: int, *, write: bool = True) -> SkipRequest:
    return SkipRequest(0, offset, WHO, WHY, write)


def log_in(config: Config, model: Model, gone: int) -> LogReader:
    """The training log of a damaged copy, as it is when the record `gone` is passed over."""
    topic = config.examples_topic
    (value,) = [value for offset, _, value, _ in model.site.records(topic, 0) if offset == gone]
    reader = LogReader(model.site.settings, topic, 0)
    reader.rule.note_skip(gone, checksum_of(value))
    return reader


def with_own_group(site: Site, config: Config) -> Config:
    """The configuration with a group that has committed nothing: its joiner reads the log from the beginning."""
    tree = config.model_dump(mode="json", by_alias=True)
    tree["kafka"] = site.tree["kafka"]
    tree["join"] = {**site.tree["join"], "group": f"{site.model}.again"}
    tree["learner"] = {**tree["learner"], "publish": False, "copies": False}
    return Config.model_validate(tree)


def test_a_damaged_record_that_counts_is_passed_over_by_all_once_it_is_skipped(model: Model) -> None:
    """Learner and joiner stop at it and say how to go on; a dry run says what is lost, and changes nothing. With the
    skip both go on to the end: the examples are those of the whole log without the record's. A learner that begins
    again makes the same model, and the audit counts what is lost.
    """
    site, gone = model.site, model.first
    config = with_own_group(site, model.damaged(model.flipped(gone, -1)))
    lost = len(model.tick.records[0][1])
    for role in (site.learner(config), site.joiner(config)):
        error = failure_of(role, DamagedLog)
        assert f"{config.examples_topic} partition 0 offset {gone}: " in str(error)
        assert f"log skip {gone} --partition 0" in error.action
    plan = log_skip(config, request(gone, write=False))
    assert (plan["written"], plan["kind"], plan["tick"]) == (False, "examples", model.mark.last_tick)
    assert (plan["examples_lost"], plan["stopped_at"]) == (lost, None)
    assert plan["read_before"] < plan["tick"] < plan["read_now"]
    failure_of(site.learner(config), DamagedLog)
    assert {**log_skip(config, request(gone)), "written": False} == plan
    log, learner = log_in(config, model, gone), site.learner(config)
    with running(site.joiner(config), learner):
        site.produce(0.5, 1.0)
        wait_until(lambda: learner.tick >= site.end_tick, "every tick folded")
    log.read(site.ends(config.examples_topic, 1)[0])
    assert log.rule.skipped_records == 1
    oracle = site.scenario.expected()[0].examples
    assert len(log.examples()) == len(oracle) - lost == learner.learner.examples
    fresh = site.learner(
        config.model_copy(update={"learner": config.learner.model_copy(update={"state_dir": site.folder / "fresh"})})
    )
    with running(fresh):
        wait_until(lambda: fresh.tick >= site.end_tick, "every tick folded")
    assert fresh.learner.digest() == learner.learner.digest()
    (row,) = audit(config, AuditRequest(replay=True))["partitions"]
    assert (row["skipped_records"], row["lost_examples"], row["gaps"]) == (1, lost, 0)
    assert row["examples"] == len(log.examples())
    assert inspect_tick(config, 0, model.mark.last_tick)["offset"] == model.at
    log.close()


def test_the_skip_says_who_when_and_why_and_only_what_stops_readers_is_skipped(
    model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command; a second time, a sound record, and one that is not there are refused."""
    site, gone = model.site, model.first
    config = model.damaged(model.flipped(gone, -1))
    file = site.write_config(topics=config.model_dump(mode="json", by_alias=True)["topics"])
    end = site.ends(config.examples_topic, 1)[0]
    words = ["log", "skip", str(gone), "-p", "0", "--reason", WHY, "--who", WHO, "-c", str(file), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["written"] is True
    shown = inspect_record(config, 0, end)
    assert (shown["kind"], shown["named"], shown["who"], shown["why"]) == ("skip", gone, WHO, WHY)
    with pytest.raises(SkipRefused, match="no reader stops"):
        log_skip(config, request(gone))
    with pytest.raises(SkipRefused, match="no reader stops"):
        log_skip(config, request(model.at))
    with pytest.raises(NotFound):
        log_skip(config, request(10**9))


def test_what_else_stops_readers_is_told(model: Model) -> None:
    """A second damaged record, in a later tick; a record of a newer version, which no skip passes over."""
    later = next(tick for tick in model.ticks[model.place + 1 :] if tick.records)
    config = model.damaged(lambda log: model.flipped(model.first, -1)(log)[: later.mark_offset])
    last = later.records[0][0]
    newer = b"SLTL" + struct.pack("<H", VERSION + 1) + bytes(40)
    model.site.append(config.examples_topic, 0, newer)
    found = log_skip(config, request(model.first))
    assert (found["tick"], found["stopped_at"]) == (model.mark.last_tick, later.mark_offset)
    with pytest.raises(SkipRefused, match=r"no skip helps: .*version"):
        log_skip(config, request(later.mark_offset))
    config = model.damaged(lambda log: model.flipped(last, -1)(model.flipped(model.first, -1)(log)))
    with pytest.raises(SkipRefused, match=f"readers stop elsewhere: .* offset {model.first}"):
        log_skip(config, request(last))


def test_a_mark_that_later_ticks_follow_is_not_skipped(model: Model) -> None:
    """Without it none of them would count. A mark at the end of the log may be, if no joiner runs."""
    site = model.site
    config = model.damaged(model.flipped(model.at, -1))
    with pytest.raises(SkipRefused, match="would never count"):
        log_skip(config, request(model.at))
    last = model.ticks[-1].mark_offset
    config = with_own_group(site, model.damaged(lambda log: model.flipped(last, -1)(log)[: last + 1]))
    failure_of(site.joiner(config), DamagedLog)
    with running(site.joiner(site.changed(join={"group": config.group}))):
        wait_until(lambda: site.members(config.group), "a joiner runs")
        with pytest.raises(JoinersRun):
            log_skip(config, request(last))
    assert log_skip(config, request(last))["examples_lost"] == 0
    with running(site.joiner(config)):
        site.produce(0.5, 1.0)
        reader = log_in(config, model, last)
        wait_until(
            lambda: reader.read(site.ends(config.examples_topic, 1)[0]).last_tick >= site.end_tick, "every tick closed"
        )
    assert len(reader.examples()) == len(site.scenario.expected()[0].examples)
    reader.close()
