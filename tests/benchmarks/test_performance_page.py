"""The pages of performance and README are what the kept figures make, and what they multiply and add comes out."""

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
from benchmarks.bench_instructions import NOT_COUNTED
from benchmarks.peers.programs import PROGRAMS
from benchmarks.performance import PAGES, README, TABLE, page_with, read, taken_in
from benchmarks.performance_readme import readme_with
from benchmarks.performance_tables import NEEDED, TABLES, Figures, table
from stream_learner.operations.doctor.sizing import Prices

TEXT = "".join(page.read_text(encoding="utf-8") for page in PAGES)
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def rows_of(name: str) -> list[list[str]]:
    """The cells of a table of the pages, without its head."""
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


def test_the_pages_are_what_the_kept_figures_make() -> None:
    """Tables are never written by hand: `python -m benchmarks.performance` would change nothing."""
    assert page_with(read(), TEXT) == TEXT


def test_readme_is_what_the_kept_figures_make() -> None:
    """The same command writes it, from the same figures."""
    text = README.read_text(encoding="utf-8")
    assert readme_with(Figures(read()), text) == text


def test_readme_and_page_have_the_same_figures() -> None:
    """Ratios to the peers are those of the page's table."""
    (line,) = [row for row in README.read_text(encoding="utf-8").splitlines() if row.startswith("| whole loop |")]
    ratios = [number(part) for part in line.split("|")[2].split(",")]
    peers = {row[1]: number(row[3]) for row in rows_of("peers")}
    assert ratios == pytest.approx([peers[name] for name in ("flink", "python-vw", "python-river")], abs=0.51)


def test_readme_says_on_what_it_was_measured() -> None:
    """Machine and day; short runs are named, and several machines or days are all there."""
    kept = read()
    kept["decode"] = {**kept["decode"], "machine": {**kept["decode"]["machine"], "cpu": "Other"}, "day": "2027-01-01"}
    kept["serve"] = {**kept["serve"], "quick": True}
    text = " ".join(readme_with(Figures(kept), README.read_text(encoding="utf-8")).split())
    assert "cores of Other" in text and f"cores of {kept['peers']['machine']['cpu']}" in text
    assert "to 2027-01-01" in text
    assert re.search(r"\(short runs: [a-z, ]*serve", text)


def test_every_table_is_on_a_page_once() -> None:
    """None is made for nothing, none is missing."""
    assert sorted(mark[1] for mark in TABLE.finditer(TEXT)) == sorted(TABLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_read_at_once(page: Path) -> None:
    """At most 3,000 words, tables included."""
    assert len(page.read_text(encoding="utf-8").split()) <= 3_000


def test_every_command_of_the_pages_exists() -> None:
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
    """The table of machines has each once."""
    named = [name for row in rows_of("machines") for name in re.findall(r"`(\w+)(?: --quick)?`", row[0])]
    assert sorted(named) == sorted(NEEDED)
    assert all("cores of" in row[1] and re.fullmatch(r"\d{4}-\d\d-\d\d", row[2]) for row in rows_of("machines"))


def test_the_least_is_the_sum_of_its_steps() -> None:
    """And what was measured stands in the ratio to it that the page says."""
    *steps, least, measured, ratio = [number(row[2]) for row in rows_of("limit")]
    assert least == pytest.approx(sum(steps), abs=len(steps) / 2 + 0.5)
    assert ratio == pytest.approx(measured / least, abs=0.06)


def test_instructions_of_the_limit_are_those_counted() -> None:
    """Of the steps that are counted, and their sum; or there are none."""
    *steps, least, _, _ = [number(row[3]) if row[3] else 0.0 for row in rows_of("limit")]
    assert least == pytest.approx(sum(steps), abs=len(steps) / 2 + 0.5)
    counted = {number(row[1]) for row in rows_of("instructions")}
    assert {step for step in steps if step} <= counted


def test_instructions_a_cycle_are_a_quotient() -> None:
    """Of two columns."""
    for _, instructions, cycles, each, *_ in rows_of("instructions"):
        assert number(each) == pytest.approx(number(instructions) / number(cycles), abs=0.06)


def test_a_machine_that_does_not_count_is_said_so() -> None:
    """In place of the table; the limit goes without."""
    kept = read()
    kept["instructions"] = {**kept["instructions"], "rows": {NOT_COUNTED: [0.0, "", "the system refuses"]}}
    kept["peers"] = {
        **kept["peers"],
        "rows": {name: row for name, row in kept["peers"]["rows"].items() if "instructions" not in name},
    }
    text = page_with(kept, TEXT)
    assert "Not counted: the system refuses.\n" in text
    assert "| **the least** | sum |" in text


def test_clicks_in_memory_stay_below_the_arithmetic() -> None:
    """And the share is a quotient."""
    assert len(rows_of("windows-seen")) >= 2
    for _, _, each, most, share in rows_of("windows-seen"):
        assert number(each) <= number(most)
        assert number(share) == pytest.approx(100 * number(each) / number(most), abs=1)


def test_several_joiners_stand_beside_one() -> None:
    """The ratio is that of their times."""
    one, *several = rows_of("joiners-seen")
    assert one[0] == "1 joiner" and several
    for row in several:
        assert number(row[2]) == pytest.approx(number(row[1]) / number(one[1]), abs=0.01)


@pytest.mark.parametrize("role", ["joiner", "learner", "loop"])
def test_the_parts_of_a_role_are_its_whole(role: str) -> None:
    """Nanoseconds and shares add up."""
    *parts, whole = [row for row in rows_of("spent") if row[0] == role]
    assert number(whole[2]) == pytest.approx(sum(number(row[2]) for row in parts), abs=len(parts))
    assert sum(number(row[3]) for row in parts) == pytest.approx(100, abs=len(parts))


def test_a_figure_is_the_same_in_every_table() -> None:
    """The wholes of joiner, learner and loop are those of the peers, and what the limit is compared with."""
    joiner, learner, loop = [number(row[2]) for row in rows_of("spent") if row[1] == "**sum**"]
    assert loop == next(number(row[2]) for row in rows_of("limit") if row[0] == "**measured**")
    assert [joiner, learner] == [number(row[2]) for row in rows_of("spent") if row[1] in ("joiner", "learner")]
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
    for _, name, _, _, settings, lacks, _ in rows_of("peers"):
        assert settings
        assert bool(lacks) != name.startswith("stream-learner"), name


def test_servers_stand_beside_each_other_for_each_size_of_request() -> None:
    """This project's, River's and the echo, each with its processor time, rate and times; gRPC for itself."""
    rows = rows_of("serving")
    by_http = [row for row in rows if "gRPC" not in row[0]]
    by_size = {events: [row[0] for row in by_http if row[1] == events] for events in ("1", "100", "1,000")}
    assert set(map(tuple, by_size.values())) == {("serve", "FastAPI + River", "Starlette echo")}
    assert all(number(cell) > 0 for row in rows for cell in row[2:6]) and {len(row) for row in rows} <= {6, 7}


def test_every_role_says_what_it_costs_at_rest_and_at_start() -> None:
    """A start that finds no machine code takes more than one that does."""
    rows = rows_of("rest")
    assert [row[0] for row in rows] == ["`join`", "`learn`", "`score`", "`serve`"]
    for _, idle, start, ready, first in rows:
        assert number(idle) > 0 and number(ready) > 0
        assert 0 < number(start) < number(first)


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
    assert len(products) == 9
    for _, how, whole, peak in products:
        assert size(whole) == pytest.approx(math.prod(number(factor) for factor in how.split("×")), rel=0.01)
        assert not peak or size(peak) == pytest.approx(3 * size(whole), rel=0.02)


def test_doctor_reckons_with_the_figures_of_the_page() -> None:
    """To the last digit that the page shows."""
    prices = Figures(read()).prices
    assert {name: round(of) for name, of in vars(prices).items() if of is not None} == vars(Prices())


def test_cores_are_time_by_rate() -> None:
    """Nanoseconds an impression by impressions a second."""
    rate, *rows = rows_of("billion")
    cores = [row for row in rows if row[0].endswith(": cores")]
    assert [row[0] for row in cores] == ["joiners: cores", "learner: cores", "brokers: cores"]
    for row in cores:
        for at in (2, 3):
            assert number(row[at]) == pytest.approx(number(row[1]) * number(rate[at]) / 1e9, rel=0.01, abs=0.001)


def test_new_figures_replace_those_of_the_same_benchmark_only() -> None:
    """A run of one benchmark leaves the others as they are; what the page does not need is not kept."""
    kept = read()
    row = {"benchmark": "machine", "name": "machine.cycle", "value": 0.5, "unit": "ns", "note": "n"}
    other = {**row, "benchmark": "text"}
    taken = taken_in(kept, [{"machine": {"cpu": "x"}, "quick": True, "rows": [row, other], "failed": {}}], "2027-01-01")
    assert taken["machine"]["rows"] == {"machine.cycle": (0.5, "ns", "n")}
    assert taken["machine"]["machine"] == {"cpu": "x"}
    assert {name: taken[name] for name in kept if name != "machine"} == {
        name: kept[name] for name in kept if name != "machine"
    }
    assert "text" not in taken


def test_the_command_writes_page_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New figures come into the tables; the text around them stays."""
    page, kept, readme = tmp_path / "page.md", tmp_path / "kept.json", tmp_path / "README.md"
    page.write_text(TEXT, encoding="utf-8")
    readme.write_text("# A\n<!-- figures: make bench -->\n<!-- /figures -->\n# B\n", encoding="utf-8")
    kept.write_text(json.dumps(read()), encoding="utf-8")
    printed = tmp_path / "printed.json"
    rows = [
        {"benchmark": "machine", "name": f"machine.{name}", "value": value, "unit": "ns"}
        for name, value in (("cycle", 1.0), ("prefetched_update", 100.0), ("stream", 1.0), ("dependent_read", 1.0))
    ]
    machine = read()["machine"]["machine"]
    printed.write_text(json.dumps({"machine": machine, "quick": False, "rows": rows, "failed": {}}), encoding="utf-8")
    monkeypatch.setattr(performance, "PAGES", [page])
    monkeypatch.setattr(performance, "README", readme)
    monkeypatch.setattr(performance, "KEPT", kept)
    monkeypatch.setattr(sys, "argv", ["performance", str(printed)])
    performance.main()
    assert re.fullmatch(
        r"# A\n<!-- figures: make bench -->\n.*\| whole loop \|.*<!-- /figures -->\n# B\n", readme.read_text(), re.S
    )
    assert "| join | 2 ids, prefetched | 200 |" in page.read_text(encoding="utf-8")
    without = [TABLE.sub("", text) for text in (TEXT, page.read_text(encoding="utf-8"))]
    assert without[0] == without[1]


def test_figures_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them there is no page; the message says what to run."""
    monkeypatch.setattr(performance, "KEPT", tmp_path / "none.json")
    monkeypatch.setattr(performance, "PAGES", [tmp_path / "none.md"])
    monkeypatch.setattr(sys, "argv", ["performance"])
    with pytest.raises(SystemExit, match=r"no figures of machine, .*run `python -m benchmarks --json machine"):
        performance.main()
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_that_is_not_whole_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures stay those of before, the others are taken; the command ends with an error and says which."""
    kept, page, readme = tmp_path / "kept.json", tmp_path / "page.md", tmp_path / "README.md"
    for path, text in ((kept, json.dumps(read())), (page, TEXT), (readme, "")):
        path.write_text(text, encoding="utf-8")
    rows = [
        {"benchmark": "peers", "name": "join: stream-learner-join", "value": 1.0, "unit": "s of CPU/M"},
        *({"benchmark": "join", "name": name, "value": 7.0, "unit": "ns"} for name in read()["join"]["rows"]),
    ]
    run = {"machine": {"cpu": "x"}, "quick": False, "rows": rows, "failed": {"peers": "flink left out: needs Maven"}}
    run["machine"] = read()["machine"]["machine"]
    printed, broken = tmp_path / "printed.json", tmp_path / "broken.json"
    printed.write_text(json.dumps(run), encoding="utf-8")
    broken.write_text("", encoding="utf-8")
    other = tmp_path / "other.json"
    other.write_text("[]", encoding="utf-8")
    monkeypatch.setattr(performance, "PAGES", [page])
    monkeypatch.setattr(performance, "README", readme)
    monkeypatch.setattr(performance, "KEPT", kept)
    monkeypatch.setattr(sys, "argv", ["performance", str(printed), str(broken), str(other)])
    with pytest.raises(
        SystemExit,
        match=r"broken.json: Expecting value.*\n.*other.json: not what .*\npeers: flink left out: needs Maven",
    ):
        performance.main()
    now = json.loads(kept.read_text(encoding="utf-8"))
    assert now["peers"] == read()["peers"]
    assert {row[0] for row in now["join"]["rows"].values()} == {7.0}


def test_a_figure_that_is_called_otherwise_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written then."""
    kept = read()
    kept["store"]["rows"].pop("restart_10m")
    (tmp_path / "kept.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(performance, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(sys, "argv", ["performance"])
    with pytest.raises(SystemExit, match="no figure 'restart_10m'"):
        performance.main()
    assert "".join(page.read_text(encoding="utf-8") for page in PAGES) == TEXT


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
