"""`score`: answers in the order of the lines, as soon as they can be given, the same as the library's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream_learner import Scorer, errors
from stream_learner.core.events.reasons import BEYOND_FLOAT64, Reason
from stream_learner.traffic import TrafficModel
from tests.cli_e2e.commands import answer_of, answers_of, started
from tests.cli_e2e.conftest import Learned, MakeWorld

GOOD = b'{"site":"site-1","slot":2}'


@pytest.fixture(scope="module")
def events() -> list[bytes]:
    """Impressions that the model has not seen."""
    chunks = TrafficModel(7).events(1_000, 1_700_000_000_000, 1_500)
    return [value for chunk in chunks for _, _, value in chunk.impressions]


def test_a_file_is_scored_as_the_library_scores_it(learned: Learned, events: list[bytes], tmp_path: Path) -> None:
    """A line for each, in order, also with batches smaller than the file; lines that are no event say why."""
    beyond = b'{"site":"site-1","slot":1e400}'
    lines = [*events, b"not JSON", beyond, b"", GOOD + b"\r", b"[1]", GOOD]
    file, output = tmp_path / "events.jsonl", tmp_path / "answers.jsonl"
    file.write_bytes(b"\n".join(lines))
    command = ("score", "-c", learned.world.file, file)
    shown, written = answers_of(command, (*command, "--output", output, "--batch", "64"))
    assert (shown.code, written.code, written.out) == (0, 0, "")
    assert output.read_text() == shown.out
    answers = [json.loads(line) for line in shown.out.splitlines()]
    with Scorer(learned.world.settings.bootstrap, learned.world.model) as scorer:
        scorer.wait_ready()
        expected = scorer.predict_many(lines)
    assert len(answers) == len(lines)
    for answer, p_click, status in zip(answers, expected.p_click.tolist(), expected.status.tolist(), strict=True):
        if status:
            assert answer["error"] in (Reason(status).text, BEYOND_FLOAT64) and len(answer) == 1
        else:
            assert answer == {"p": p_click, "version": expected.version}
    assert [answer.get("error") for answer in answers[-6:]] == [
        "not JSON",
        BEYOND_FLOAT64,
        "not JSON",
        None,
        Reason.NOT_OBJECT.text,
        None,
    ]


def test_a_pipe_is_answered_line_by_line(learned: Learned) -> None:
    """An answer comes before the next line is asked for; the end of the input is the end."""
    with started("score", "-c", learned.world.file, piped=True) as command:
        stdin, stdout = command.process.stdin, command.process.stdout
        assert stdin is not None and stdout is not None
        answers = []
        for line in (GOOD, b"{", GOOD):
            stdin.write(line + b"\n")
            stdin.flush()
            answers.append(json.loads(stdout.readline()))
        stdin.write(GOOD)
        stdin.close()
        answers.append(json.loads(stdout.readline()))
        assert command.ended().code == 0
    assert [answer.get("error") for answer in answers] == [None, "not JSON", None, None]
    assert answers[0] == answers[2] == answers[3]
    assert 0 < answers[0]["p"] < 1 and answers[0]["version"] > 0


def test_whoever_reads_may_leave_early(learned: Learned, tmp_path: Path) -> None:
    """`score | head` ends without a word about it."""
    file = tmp_path / "events.jsonl"
    file.write_bytes((GOOD + b"\n") * 50_000)
    # Minutes may have passed since the model was published.
    fresh = "scorer.stale_after=1h"
    with started("score", "-c", learned.world.file, "--set", fresh, file, piped=True) as command:
        assert command.process.stdout is not None
        command.process.stdout.readline()
        command.process.stdout.close()
        assert command.ended().code != 70
        # Loading the kernels may say that it takes long.
        assert [event for event in command.events if event["role"] != "kernels"] == []


def test_a_file_that_is_not_there_is_named(learned: Learned) -> None:
    """Before anything is loaded."""
    ended = answer_of("score", "-c", learned.world.file, "nowhere.jsonl")
    assert ended.code == errors.ConfigError.exit_code
    assert "nowhere.jsonl" in ended.error["message"]


def test_what_is_not_there_is_not_deleted(make_world: MakeWorld) -> None:
    """Nothing of the name is told as that."""
    world = make_world()
    for more in ((), ("--write",)):
        ended = answer_of("delete", "nobody", "-c", world.file, *more)
        assert ended.code == 0 and "there is nothing of nobody" in ended.out
