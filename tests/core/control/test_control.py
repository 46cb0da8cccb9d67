"""The control topic's records: what is written is read, what is not ours is refused, and no change is lost."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.control.gate_state import GateState, HeldPublication, Holding
from stream_learner.core.control.records import (
    DELETE,
    HISTORY,
    PROMOTE,
    ROLLBACK,
    Accepted,
    Alias,
    Change,
    LogDecision,
    Pin,
    Publication,
    Record,
    decode,
    encode,
)
from stream_learner.core.control.rewinds import Rewind, Rewinds
from stream_learner.core.control.state import ControlState, merged
from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where
from stream_learner.core.gate.decisions import Decision, Decisions

NAMES = st.from_regex(r"\A[a-zA-Z0-9][a-zA-Z0-9._-]{0,20}\Z")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.integers(0, 2**53)
IDS = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
WHERE = Where(7, 0, "site.control")


def change(
    number: int, to: str | None, before: str | None = None, what: str = "", when_ms: int | None = None
) -> Change:
    """A change that is told from others by its number."""
    what = what or (DELETE if to is None else PROMOTE)
    return Change(f"{number:016x}", what, "ann", number if when_ms is None else when_ms, before, to)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    what = draw(st.sampled_from([PROMOTE, ROLLBACK, DELETE]))
    to = None if what == DELETE else draw(NAMES)
    before = draw(st.none() | NAMES)
    return Change(draw(IDS), what, draw(TEXTS), draw(TIMES), before, to, draw(st.booleans()), draw(TEXTS))


@st.composite
def rewinds(draw: st.DrawFn) -> Rewind:
    to_tick = draw(st.integers(-1, 2**40))
    return Rewind(to_tick, to_tick + draw(st.integers(0, 10**6)), draw(TEXTS), draw(TIMES), draw(TEXTS))


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    first, more = draw(TIMES), draw(TIMES)
    return Decision.make(
        draw(st.sampled_from(["accept", "skip"])),
        first,
        first + more,
        who=draw(TEXTS),
        when_ms=draw(TIMES),
        why=draw(TEXTS),
    )


LOGS = st.from_regex(r"\A[a-zA-Z0-9._-]{1,20}\Z")
NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
HOLDINGS = st.builds(Holding, TIMES, st.integers(-1, 2**53), TEXTS, TEXTS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(Alias, NAMES, st.lists(changes(), min_size=1, max_size=HISTORY).map(tuple)),
    st.builds(Publication, NAMES, st.booleans(), TEXTS, TIMES, TEXTS),
    st.builds(Pin, NAMES, NAMES, st.booleans(), st.none() | TIMES, TEXTS, TIMES, TEXTS),
    st.builds(LogDecision, LOGS, decisions()),
    st.builds(Accepted, NAMES, st.integers(-1, 2**40), TEXTS, TIMES, TEXTS),
    st.builds(Rewinds, NAMES, st.lists(rewinds(), min_size=1, max_size=4).map(tuple)),
    st.builds(GateState, NAMES, LOGS, TEXTS, st.none() | HOLDINGS, st.lists(IDS, max_size=3).map(tuple), TEXTS, TIMES),
)


@given(RECORDS)
def test_what_is_written_is_read(record: Record) -> None:
    """Key and value give the record back."""
    assert decode(record.key, encode(record)) == record


@given(RECORDS, st.data())
def test_a_value_that_was_changed_is_read_or_refused(record: Record, data: st.DataObject) -> None:
    """A field of another type, or one that is gone, never becomes an error that no one expects."""
    fields = orjson.loads(encode(record))
    name = data.draw(st.sampled_from(sorted(fields)))
    other = data.draw(st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.just([]) | st.just([3]))
    fields[name] = other
    with suppress(RecordError):
        decode(record.key, orjson.dumps(fields), WHERE)
    del fields[name]
    if name not in ("previous", "who", "when_ms", "from", "forced", "note"):
        with pytest.raises(RecordError):
            decode(record.key, orjson.dumps(fields), WHERE)


@pytest.mark.parametrize(
    ("key", "value", "kind", "words"),
    [
        (b"alias/ctr", b"hello", ForeignRecord, "not JSON"),
        (b"alias/ctr", b"[1]", ForeignRecord, "no JSON object with a format"),
        (b"alias/ctr", b'{"model":"x"}', ForeignRecord, "no JSON object with a format"),
        (b"alias/ctr", b'{"format":"1"}', ForeignRecord, "no JSON object with a format"),
        (b"alias/ctr", b'{"format":2}', NewerVersion, "format 2, this program knows 1"),
        (b"split/ctr", b'{"format":2}', NewerVersion, "format 2"),
        (
            b"split/ctr",
            b'{"format":1}',
            ForeignRecord,
            "none of alias/, publication/, pin/, decision/, gate/, rewind/ and publish/",
        ),
        (b"\xff", b'{"format":1}', ForeignRecord, "none of"),
        (b"", b'{"format":1}', ForeignRecord, "none of"),
        (b"alias/ctr", b'{"format":1}', DamagedRecord, "has no 'history'"),
    ],
)
def test_what_is_not_ours_is_refused_with_its_place(
    key: bytes, value: bytes, kind: type[RecordError], words: str
) -> None:
    """Somebody else's record, a later format, one of ours that lacks something."""
    with pytest.raises(kind, match=words) as caught:
        decode(key, value, WHERE)
    assert str(caught.value).startswith("topic site.control, partition 0, offset 7: ")


def broken(record: Record, **fields: Any) -> bytes:
    return json.dumps({**orjson.loads(encode(record)), **fields}).encode()


def test_a_record_that_contradicts_itself_is_damaged() -> None:
    """Another name than the key's, a model that is not the last change's, an empty history, odd changes."""
    alias = Alias("ctr", (change(1, "a"),))
    (row,) = orjson.loads(encode(alias))["history"]
    rows = [{**row, "what": "delete"}, {**row, "what": "merge"}, {**row, "id": "1"}, {**row, "to": "no name"}, {}]
    values = [broken(alias, alias="other"), broken(alias, model="b"), broken(alias, history=[])]
    values += [broken(alias, history=[other]) for other in rows]
    for value in values:
        with pytest.raises(DamagedRecord):
            decode(alias.key, value)
    pin = Pin("ctr", "a", True, 5, "ann", 1)
    with pytest.raises(DamagedRecord, match="version is -1"):
        decode(pin.key, broken(pin, version=-1))


@given(st.lists(decisions(), max_size=6), st.randoms(use_true_random=False))
def test_decisions_add_up_in_any_order(made: list[Decision], rng: Any) -> None:
    """By log, each once, whatever came first; one that is deleted is gone, one that cannot be read changes nothing."""
    shuffled = [*made, *made]
    rng.shuffle(shuffled)
    state = ControlState()
    for decision in shuffled:
        state.take(LogDecision("a.examples", decision).key, encode(LogDecision("a.examples", decision)))
    assert state.decisions_of("a.examples") == Decisions(made) and not state.decisions_of("b.examples")
    for decision in made[:1]:
        record = LogDecision("a.examples", decision)
        with pytest.raises(DamagedRecord):
            state.take(record.key, broken(record, to_tick=decision.to_tick + 1))
        assert state.decisions_of("a.examples") == Decisions(made)
        state.take(record.key, None)
        assert state.decisions_of("a.examples") == Decisions(one for one in made if one != decision)


def test_what_a_gate_says_is_that_of_its_last_record() -> None:
    """By model; a holding that lacks a number, or has another type, is damaged."""
    holding = Holding(7, 5, "clicks", "", 0.0, 20.0, 3.5, None)
    held = GateState("m", "m.examples", "hold", holding, (), "learner@host", 1, "clicks: 0")
    opened = replace(held, holding=None, late=("00000000000000ff",), when_ms=2)
    state = ControlState()
    for record in (held, opened):
        assert state.take(record.key, encode(record)) == record and state.gates == {"m": record}
    bad: Any
    for bad in ({"tick": "7"}, {"found": True}, {"found": "x"}, {"bound": None}, {"since_tick": 1.5}, {"tick": -1}):
        fields = {**orjson.loads(encode(held))["holding"], **bad}
        with pytest.raises(DamagedRecord):
            decode(held.key, broken(held, holding=fields))
    for bad in ([1], ["xyz"], "00000000000000ff"):
        with pytest.raises(DamagedRecord):
            decode(held.key, broken(held, late=bad))
    for bad in ([], {"tick": 5, "bound": "change"}, {"tick": "5", "bound": "change", "reason": "x"}):
        with pytest.raises(DamagedRecord):
            decode(held.key, broken(held, publication=bad))
    state.take(opened.key, None)
    assert state.gates == {}


def test_a_gate_says_of_publications_only_what_it_holds() -> None:
    """A record without it is what it was before there was this field."""
    held = GateState("m", "m.examples", "hold", None, (), "learner@host", 1)
    assert "publication" not in orjson.loads(encode(held))
    withheld = replace(held, publication=HeldPublication(5, "change", "the mean change is 0.9"))
    for record in (held, withheld):
        assert decode(record.key, encode(record)) == record


def test_what_would_not_be_read_is_not_written() -> None:
    """A name that no model has, an alias without a change."""
    for record in (Publication("no name", True, "ann", 1), Pin("", "a", True, 1, "", 1)):
        with pytest.raises(ValueError, match="is no name of a model"):
            encode(record)
    with pytest.raises(ValueError, match="history is empty"):
        encode(Alias("ctr", ()))


@pytest.mark.parametrize(
    ("moves", "previous"),
    [
        ("a", None),
        ("a b", "a"),
        ("a b c", "b"),
        ("a b c <b", "a"),
        ("a b c <b <a", None),
        ("a b c <a", None),
        ("a b c <b d", "b"),
        ("a b <a b", "a"),
        ("a b <c", "b"),
        ("a b - c", None),
        ("a b - c d", "c"),
    ],
)
def test_where_a_rollback_goes(moves: str, previous: str | None) -> None:
    """To the model before, rollbacks left out together with what they undid; a deletion begins anew."""
    history, before = [], None
    for number, move in enumerate(moves.split()):
        to = None if move == "-" else move.removeprefix("<")
        history.append(change(number, to, before, ROLLBACK if move.startswith("<") else ""))
        before = to
    assert Alias("ctr", tuple(history)).previous == previous


def test_only_the_last_changes_are_kept() -> None:
    """Where the first that is kept came from still counts as a model to go back to."""
    alias = Alias("ctr", (change(0, "m0"),))
    for number in range(1, 50):
        alias = alias.changed(change(number, f"m{number}", f"m{number - 1}"))
    assert [c.to_model for c in alias.history] == [f"m{n}" for n in range(50 - HISTORY, 50)]
    assert (alias.model, alias.previous) == ("m49", "m48")
    assert decode(alias.key, encode(alias)) == alias


class Writer:
    """Writes one change as `roles/control/topic.py` does, a step at a time, to a list that stands for the topic."""

    def __init__(self, log: list[Alias], new: Change) -> None:
        self._log = log
        self._new = new
        self._read = 0
        self._state: Alias | None = None
        self._stage = "read"

    def step(self) -> bool:
        """Take the next step; False once it has nothing more to do."""
        if self._stage == "done":
            return False
        if self._stage == "read":
            self._catch_up()
            self._stage = "append"
        elif self._stage == "append":
            record = Alias("ctr", (self._new,)) if self._state is None else self._state.changed(self._new)
            self._log.append(record)
            self._stage = "look"
        else:
            self._catch_up()
            assert self._state is not None
            if self._log[self._read - 1] == self._state:
                self._stage = "done"
            elif self._stage == "look":
                self._stage = "mend"
            else:
                self._log.append(self._state)
                self._stage = "look"
        return True

    def _catch_up(self) -> None:
        for record in self._log[self._read :]:
            self._state = merged(self._state, record)
        self._read = len(self._log)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=60), st.lists(st.integers(0, 9), min_size=5, max_size=5))
def test_changes_made_side_by_side_are_all_in_the_last_record(
    writers: int, order: list[int], clocks: list[int]
) -> None:
    """In whatever order several writers take their steps, with clocks that disagree: once all have done, the last
    record, all that compaction leaves, has every change, and points where the change does that was appended last."""
    log: list[Alias] = []
    every = [change(number, f"m{number}", when_ms=clocks[number]) for number in range(writers)]
    running = [Writer(log, new) for new in every]
    for turn in itertools.chain(order, itertools.cycle(range(writers))):
        running[turn % writers].step()
        if all(writer._stage == "done" for writer in running):
            break
    first_seen: dict[str, int] = {}
    for at, record in enumerate(log):
        for entry in record.history:
            first_seen.setdefault(entry.id, at)
    assert {entry.id for entry in log[-1].history} == {entry.id for entry in every}
    assert log[-1].last.id == max(first_seen, key=lambda identity: first_seen[identity])


@given(RECORDS, RECORDS)
def test_records_add_up(one: Record, other: Record) -> None:
    """The last of each key is what it was; what is deleted is gone; what cannot be used leaves what was known."""
    state = ControlState()
    for record in (one, other):
        state.take(record.key, encode(record))
        assert state.latest[record.key] == record
        assert state.current(record.key) is not None
    with pytest.raises(ForeignRecord):
        state.take(one.key, b"hello", WHERE)
    assert state.unusable[one.key].where == WHERE
    assert state.current(one.key) is not None
    state.take(one.key, None)
    state.take(other.key, None)
    assert (state.aliases, state.publications, state.pins, state.unusable, state.latest) == ({}, {}, {}, {}, {})


def test_pauses_and_pins() -> None:
    """They hold until they are taken back."""
    state = ControlState()
    pause, pin = Publication("m", True, "ann", 1), Pin("ctr", "m", True, 5, "ann", 1)
    assert not state.paused("m") and state.pin("ctr") is None
    for record in (pause, pin):
        state.take(record.key, encode(record))
    assert state.paused("m") and not state.paused("n") and state.pin("ctr") == pin
    for back in (replace(pause, paused=False), replace(pin, pinned=False)):
        state.take(back.key, encode(back))
    assert not state.paused("m") and state.pin("ctr") is None
