"""`docs/performance.md` is what the kept figures make, and what it multiplies and adds comes out."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import performance
from benchmarks.__main__ import names
from benchmarks.peers.programs import PROGRAMS
from benchmarks.performance import PAGE, TABLE, page_with, read, taken_in
from benchmarks.performance_tables import NEEDED, TABLES, Figures, table

TEXT = PAGE.read_text(encoding="utf-8")
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def rows_of(name: str) -> list[list[str]]:
    """The cells of a table of the page, without its head."""
    found = re.search(rf"<!-- table: {name} -->\n(.*?)<!-- /table -->", TEXT, re.S)
    assert found, name
    lines = [line.strip()[1:-1].split("|") for line in found[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def number(cell: str) -> float:
    """The first number of a cell."""
    found = re.search(r"-?[\d,]+(?:\.\d+)?", cell)
    assert found, cell
    return float(found[0].replace(",", ""))


def size(cell: str) -> float:
    """Bytes, from a number with a unit."""
    return number(cell) * UNITS[cell.split()[-1]]


def test_the_page_is_what_the_kept_figures_make() -> None:
    """Tables are never written by hand: `python -m benchmarks.performance` would change nothing."""
    assert page_with(read(), TEXT) == TEXT


def test_every_table_is_on_the_page_once() -> None:
    """None is made for nothing, none is missing."""
    assert sorted(mark[1] for mark in TABLE.finditer(TEXT)) == sorted(TABLES)


def test_every_command_of_the_page_exists() -> None:
    """Each benchmark that is named is one, and so is each program of `peers`."""
    asked = re.findall(r'make bench ARGS=(?:"([^"]*)"|(\S+?)[`\s])', TEXT)
    words = [word for quoted, plain in asked for word in (quoted or plain).split()]
    assert set(NEEDED) <= set(words)
    for word in words:
        name, _, subjects = word.partition(":")
        assert name in names() or name in ("--quick", "--json"), word
        assert set(filter(None, subjects.split(","))) <= {program.name for program in PROGRAMS}
    assert "python -m benchmarks.performance" in TEXT


def test_every_benchmark_of_the_page_has_its_machine() -> None:
    """The table of machines has one row for each."""
    assert [re.findall(r'ARGS="(\S+?)["\s]', row[0])[0] for row in rows_of("machines")] == list(NEEDED)
    assert all("cores of" in row[1] and re.fullmatch(r"\d{4}-\d\d-\d\d", row[2]) for row in rows_of("machines"))


def test_the_least_is_the_sum_of_its_steps() -> None:
    """And what was measured stands in the ratio to it that the page says."""
    *steps, least, measured, ratio = [number(row[2]) for row in rows_of("limit")]
    assert least == pytest.approx(sum(steps), abs=len(steps) / 2 + 0.5)
    assert ratio == pytest.approx(measured / least, abs=0.06)


@pytest.mark.parametrize("role", ["joiner", "learner", "loop"])
def test_the_parts_of_a_role_are_its_whole(role: str) -> None:
    """Nanoseconds and shares add up."""
    *parts, whole = [row for row in rows_of("spent") if row[0] == role]
    assert number(whole[3]) == pytest.approx(sum(number(row[3]) for row in parts), abs=len(parts))
    assert sum(number(row[4]) for row in parts) == pytest.approx(100, abs=len(parts))


def test_a_figure_is_the_same_in_every_table() -> None:
    """The wholes of joiner, learner and loop are those of the peers, and what the limit is compared with."""
    joiner, learner, loop = [number(row[3]) for row in rows_of("spent") if row[1] == "**sum**"]
    assert loop == next(number(row[2]) for row in rows_of("limit") if row[0] == "**measured**")
    assert [joiner, learner] == [number(row[3]) for row in rows_of("spent") if row[1] in ("joiner", "learner")]
    peers = {row[1]: number(row[2]) for row in rows_of("peers")}
    ours = [peers[f"stream-learner{name}"] for name in ("-join", "-learn", "")]
    assert ours == pytest.approx([joiner / 1000, learner / 1000, loop / 1000], abs=0.06)


def test_ratios_to_the_peers_are_quotients() -> None:
    """Each is its seconds over those of the first that does the same."""
    ours: dict[str, float] = {}
    for does, _, seconds, times, *_ in rows_of("peers"):
        ours.setdefault(does, number(seconds))
        rounding = 0.05 / ours[does] * number(times) + 0.06
        assert number(times) == pytest.approx(number(seconds) / ours[does], abs=rounding)


def test_every_program_says_how_it_is_set_and_what_it_lacks() -> None:
    """All programs are there; all but this project's lack something."""
    assert [row[1] for row in rows_of("peers")] == [program.name for program in PROGRAMS]
    for _, name, _, _, settings, lacks in rows_of("peers"):
        assert settings
        assert bool(lacks) != name.startswith("stream-learner"), name


def test_servers_stand_beside_each_other_for_each_size_of_request() -> None:
    """This project's, River's and the echo, each with its processor time, rate and times; gRPC for itself."""
    rows = rows_of("serving")
    by_http = [row for row in rows if "gRPC" not in row[0]]
    by_size = {events: [row[0] for row in by_http if row[1] == events] for events in ("1", "100", "1,000")}
    assert set(map(tuple, by_size.values())) == {("serve", "FastAPI + River", "Starlette echo")}
    assert all(number(cell) > 0 for row in rows for cell in row[2:6]) and {len(row) for row in rows} <= {6, 7}


def test_a_table_of_the_model_is_bytes_times_features() -> None:
    """The last column is the product of two others."""
    for features, _, _, each, whole in rows_of("features"):
        assert size(whole) == pytest.approx(number(each) * number(features), rel=0.02)


def test_the_loop_is_as_fast_as_its_slower_side() -> None:
    """And so many a second are so many billions a day."""
    for _, joined, learned, loop, who, billions in rows_of("joiners"):
        assert number(loop) == min(number(joined), number(learned))
        assert who == ("joiners" if number(joined) < number(learned) else "learner")
        assert number(billions) == pytest.approx(number(loop) * 1e3 * 86_400 / 1e9, rel=0.01, abs=0.06)


def test_the_cost_of_a_billion_is_the_product_that_it_shows() -> None:
    """Every line that is a product of numbers comes out."""
    products = [row for row in rows_of("billion") if "×" in row[1]]
    assert len(products) == 6
    for _, how, whole, *_ in products:
        assert size(whole) == pytest.approx(math.prod(number(factor) for factor in how.split("×")), rel=0.01)


def test_cores_are_time_by_rate() -> None:
    """Nanoseconds an impression by impressions a second."""
    rate, *rows = rows_of("billion")
    for row in rows[:2]:
        for at in (2, 3):
            assert number(row[at]) == pytest.approx(number(row[1]) * number(rate[at]) / 1e9, rel=0.01, abs=0.001)


def test_new_figures_replace_those_of_the_same_benchmark_only() -> None:
    """A run of one benchmark leaves the others as they are; what the page does not need is not kept."""
    kept = read()
    row = {"benchmark": "machine", "name": "machine.cycle", "value": 0.5, "unit": "ns", "note": "n"}
    other = {**row, "benchmark": "text"}
    taken = taken_in(kept, [{"machine": {"cpu": "x"}, "quick": True, "rows": [row, other]}], "2027-01-01")
    assert taken["machine"]["rows"] == {"machine.cycle": (0.5, "ns", "n")}
    assert taken["machine"]["machine"] == {"cpu": "x"}
    assert {name: taken[name] for name in kept if name != "machine"} == {
        name: kept[name] for name in kept if name != "machine"
    }
    assert "text" not in taken


def test_the_command_writes_page_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New figures come into the tables; the text around them stays."""
    page, kept = tmp_path / "page.md", tmp_path / "kept.json"
    page.write_text(TEXT, encoding="utf-8")
    kept.write_text(json.dumps(read()), encoding="utf-8")
    printed = tmp_path / "printed.json"
    rows = [
        {"benchmark": "machine", "name": f"machine.{name}", "value": value, "unit": "ns"}
        for name, value in (("cycle", 1.0), ("prefetched_update", 100.0), ("stream", 1.0), ("dependent_read", 1.0))
    ]
    machine = read()["machine"]["machine"]
    printed.write_text(json.dumps({"machine": machine, "quick": False, "rows": rows, "failed": {}}), encoding="utf-8")
    monkeypatch.setattr(performance, "PAGE", page)
    monkeypatch.setattr(performance, "KEPT", kept)
    monkeypatch.setattr(sys, "argv", ["performance", str(printed)])
    performance.main()
    assert "| join | 2 ids, prefetched | 200 |" in page.read_text(encoding="utf-8")
    without = [TABLE.sub("", text) for text in (TEXT, page.read_text(encoding="utf-8"))]
    assert without[0] == without[1]


def test_figures_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them there is no page; the message says what to run."""
    monkeypatch.setattr(performance, "KEPT", tmp_path / "none.json")
    monkeypatch.setattr(performance, "PAGE", tmp_path / "none.md")
    monkeypatch.setattr(sys, "argv", ["performance"])
    with pytest.raises(SystemExit, match=r"no figures of machine, .*run `python -m benchmarks --json machine"):
        performance.main()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_whole_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that was left out would be missing from the page, or stand there with the figures of another day."""
    printed = tmp_path / "printed.json"
    failed = {"peers": "flink left out: needs Maven"}
    printed.write_text(json.dumps({"machine": {}, "quick": False, "rows": [], "failed": failed}), encoding="utf-8")
    monkeypatch.setattr(performance, "KEPT", tmp_path / "none.json")
    monkeypatch.setattr(sys, "argv", ["performance", str(printed)])
    with pytest.raises(SystemExit, match="not whole: peers: flink left out: needs Maven"):
        performance.main()
    assert [path.name for path in tmp_path.iterdir()] == ["printed.json"]


def test_a_name_that_is_no_benchmark_is_refused() -> None:
    """With the names there are, also when a subject is asked of it."""
    asked = [sys.executable, "-m", "benchmarks", "pears:flink"]
    ended = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no such benchmark: pears" in ended.stderr


def test_a_table_is_markdown() -> None:
    """A head, a line of dashes, the rows."""
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert Figures(read()).learn_ns > 0
