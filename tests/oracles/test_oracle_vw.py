"""The oracle of Vowpal Wabbit against the package that is installed: every printed digit, and the bits of weights.

In: the reference commands on `../shared/data/vw` beside the project's root, and a grid of options on generated
lines. References are made live, so that none can go stale.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import vowpalwabbit
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluate.vw.vw_commands import FLAGS, REFERENCES
from tests.oracles.optimizers import Loss, make, make_loss
from tests.oracles.optimizers.base import constant, powers, root
from tests.oracles.vw import Descent, Learner, Options, lambert_minus, learner_of, progressive
from tests.oracles.vw_text import CONSTANT, VwExample, hash_name, murmur3, read_line, read_number
from tests.suite.share import cases

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "vw"

EXTRAS = [
    "",
    "-l 0.1",
    "--power_t 0.3",
    "--power_t 1",
    "--initial_t 5",
    "--l1 0.001",
    "--l2 0.01",
    "--l1 0.0005 --l2 0.001",
    "--passes 4",
    "--passes 4 --holdout_off",
    "-q ab",
    "-q aa -b 8",
    "--passes 2 --holdout_off --decay_learning_rate 0.9 --ngram 2 --skips 2 -b 10",
]
DIVERGED = 1e6
MASK = (1 << 18) - 1


def lines_of(name: str) -> list[str]:
    """The lines of a reference file, or a skipped test."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs {name} in ../shared/data/vw")
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("ascii").splitlines()


def generated(count_labels: bool = False, rows: int = 40) -> list[str]:
    """Two namespaces, one of them scaled; importances, tags, repeated features, values over three decades."""
    rng = np.random.default_rng(5)
    lines = []
    for row in range(rows):
        y = int(rng.integers(0, 4)) if count_labels else int(rng.choice([-1, 1]))
        h = rng.choice(["1", "2", ".5", "3.25"])
        values = rng.uniform(-3, 3, size=rng.integers(1, 6)) * 10.0 ** rng.integers(-2, 1)
        words = " ".join(f"w{rng.integers(0, 30)}:{v:.5g}" for v in values)
        names = " ".join(f"z{rng.integers(0, 9)}" for _ in range(rng.integers(0, 4)))
        lines.append(f"{y} {h} t{row}|a {words} |b:0.5 {names}")
    return lines


class Tool:
    """The installed package, to read numbers and to hash names."""

    def __init__(self, workspace: vowpalwabbit.Workspace) -> None:
        self.workspace = workspace

    def number(self, text: str) -> float:
        """The value of a feature; 0 where the tool drops it."""
        example = self.workspace.example(f"1 |a x:{text}")
        return float(example.feature_weight("a", 0)) if example.num_features_in("a") else 0.0

    def index(self, name: str, namespace: str) -> int:
        """The index of a feature, 18 bits."""
        seed = self.workspace.hash_space(namespace)
        return int(self.workspace.hash_feature(name, seed)) & MASK


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    """One workspace for all questions."""
    workspace = vowpalwabbit.Workspace("--quiet")
    yield Tool(workspace)
    workspace.finish()


def theirs(command: str, lines: list[str], folder: Path) -> str:
    """The average loss that the tool prints."""
    source = folder / "examples.dat"
    source.write_text("\n".join(lines) + "\n", "ascii")
    cache = f"--cache_file {folder / 'cache'} -k" if "--passes" in command else ""
    workspace = vowpalwabbit.Workspace(f"{command} -d {source} {cache}", enable_logging=True)
    workspace.finish()
    (printed,) = re.findall(r"average loss = (\S+)", "\n".join(workspace.get_log()))
    return str(printed)


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "name"), REFERENCES)
def test_a_reference_command_prints_our_loss(command: str, name: str, tmp_path: Path) -> None:
    """In float32, all digits."""
    lines = lines_of(name)
    assert f"{progressive(command, lines).average_loss:.6f}" == theirs(command, lines, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "name"), [r for r in REFERENCES if "passes 8" not in r[0]])
def test_a_reference_command_needs_no_float32(command: str, name: str, tmp_path: Path) -> None:
    """In float64 the printed digits are the same: nothing in these runs hangs on rounding."""
    lines = lines_of(name)
    assert f"{progressive(command, lines, np.float64).average_loss:.6f}" == theirs(command, lines, tmp_path)


LOSSES = ("squared", "logistic", "hinge", "quantile", "poisson")
GRID = [(flags, loss) for flags in FLAGS for loss in LOSSES]
DIAGONAL = [(flags, LOSSES[(place + further) % 5]) for place, flags in enumerate(FLAGS) for further in (0, 2)]
"""Each of the options with two of the losses, each loss with four or five of the options."""


@pytest.mark.parametrize(("flags", "loss"), cases(GRID, DIAGONAL))
def test_every_combination_of_options_prints_our_loss(flags: str, loss: str, tmp_path: Path) -> None:
    """A grid; runs that diverge are left out, and no cell is left empty unless plain Poisson steps blow up."""
    lines = generated(count_labels=loss == "poisson")
    compared = 0
    for extra in EXTRAS:
        command = f"{flags} --loss_function {loss} {extra}"
        printed = theirs(command, lines, tmp_path)
        if abs(float(printed)) < DIVERGED:
            assert f"{progressive(command, lines).average_loss:.6f}" == printed, command
            compared += 1
    assert compared == len(EXTRAS) or loss == "poisson"


@pytest.mark.parametrize(
    "command",
    ["", "--adaptive --power_t 0.4", "--normalized", "--invariant --l1 0.01", "--loss_function logistic --l2 0.01"],
)
def test_the_weights_have_the_tools_bits(command: str) -> None:
    """After every example, every weight it touched."""
    workspace = vowpalwabbit.Workspace(f"{command} --quiet")
    ours = learner_of(Options(command), np.float32)
    assert isinstance(ours, Descent)
    for line in generated():
        example = read_line(line, np.float32, 18)
        ours.see_label(example.label)
        ours.learn(example, held_out=False)
        workspace.learn(line)
        for index, _ in example.features:
            assert workspace.get_weight(index) == float(ours.row(index)[0]), line
    workspace.finish()


def audited(command: str, line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> list[tuple[int, str]]:
    """Index and value of every feature as the tool prints them; in the order of the line up to 16 features."""
    source = folder / "line.dat"
    source.write_text(f"{line}\n", "utf-8")
    capfd.readouterr()
    vowpalwabbit.Workspace(f"{command} --audit --quiet -d {source}").finish()
    found = re.findall(r":(\d+):([^:\s]+):0@0", capfd.readouterr().out)
    assert 0 < len(found) <= 16
    return [(int(index), f"{float(x):.6g}") for index, x in found]


def read_by_oracle(command: str, line: str) -> list[tuple[int, str]]:
    """The result of the oracle."""
    o = Options(command).given
    example = read_line(line, np.float32, o.bit_precision, o.ngram, o.skips, o.quadratic)
    return [(index, f"{float(x):.6g}") for index, x in example.features]


@pytest.mark.parametrize(
    "command",
    ["-q ba", "-q ab -q ba", "-q ba -q ab", "-q ba -q ba", "-q cb -q ba -q ac", "-q ca -q bb -q ac", "-q cb -q aa"],
)
def test_pairs_have_the_tools_order(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first letter's index is multiplied, as written; pairs go by their bytes; of `ab` and `ba` `ab` remains."""
    line = "1 |c x:3 |a u:2 v |b z:.5 y"
    assert read_by_oracle(command, line) == audited(command, line, tmp_path, capfd)


@pytest.mark.parametrize(
    "line",
    [
        "1 |a |b z |a w",
        "1 |a 0:0 x:0 |b z |a w",
        "1 |a:0 x |b z |a w",
        "1 |c |b:0 y |a x |b z |c v",
        "1 |b x:1e-38 |a y |b z",
        "1 |b |",
        "1 |é x |a y |è z |b",
    ],
)
def test_an_empty_namespace_has_no_place(line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A letter (the first byte) has the place of its first namespace with a feature, whatever is made of it."""
    for command in ("", "--ngram 2 -q ab"):
        assert read_by_oracle(command, line) == audited(command, line, tmp_path, capfd), command


@settings(max_examples=100, deadline=None)
@given(text=st.from_regex(r"-?[0-9]{1,8}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?", fullmatch=True))
def test_numbers_are_read_as_the_tool_reads_them(tool: Tool, text: str) -> None:
    """Digit by digit in float32: not the nearest float, unless the exponent has a plus."""
    assert float(read_number(text, np.float32)) == tool.number(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-37", float(np.float32(9.9999999e-38))),
        ("1e-38", 0.0),
        ("123456789e-38", 0.0),
        ("1.0e-37", 0.0),
        ("0." + "0" * 34 + "19e-3", 0.0),
        ("0." + "0" * 35 + "19", 0.0),
        ("0e50", 0.0),
        ("9" * 50 + "e-60", 0.0),
        ("1e39", np.inf),
        ("1e-200", np.inf),
        ("1e-256", 1.0),
        ("1e256", 1.0),
        ("1e+200", np.inf),
        ("123456789.123e+5", float(np.float32(123456789.123e5))),
    ],
)
def test_powers_of_ten_end_where_the_tools_end(tool: Tool, text: str, value: float) -> None:
    """Below 1e-37 a power of ten is 0 and the feature is dropped; from 128 on the exponent starts again at -128."""
    assert float(read_number(text, np.float32)) == tool.number(text) == value


def test_exact_numbers_have_no_least_power() -> None:
    """The end of the powers of ten belongs to float32."""
    assert read_number("123456789e-38", np.float64) == pytest.approx(1.23456789e-30, rel=1e-14)


def test_one_is_not_one_when_written_with_decimals(tool: Tool) -> None:
    """A thousand times the tool's thousandth is less; float64 has no such trouble."""
    assert tool.number("1.000") == float(read_number("1.000", np.float32)) < 1.0
    assert read_number("1.000", np.float64) == 1.0


names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":|"), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(name=names)
def test_names_are_hashed_as_the_tool_hashes_them(tool: Tool, name: str) -> None:
    """Murmur3 with the namespace's hash as seed; names of digits are their value plus it."""
    for namespace in ("f", "features", "12"):
        assert hash_name(name, hash_name(namespace, 0)) & MASK == tool.index(name, namespace)
    assert hash_name("17", 4) == 21


def test_murmur3_has_its_published_values() -> None:
    """Empty input, and the alphabet of the reference implementation's own check."""
    assert murmur3(b"", 0) == 0
    assert murmur3(b"", 1) == 0x514E28B7
    assert murmur3(b"Hello, world!", 1234) == 0xFAF6CDB3


def test_a_line_becomes_features_in_the_tools_order() -> None:
    """Namespaces as they come, the constant, then interactions; a feature of value 0 is dropped."""
    line = "0.5 2 tag|f:2 a b:0.25 c:0 |T 7"
    example = read_line(line, np.float64, 18, pairs=["Tf"])
    a, b, seven = (hash_name(n, hash_name(s, 0)) for n, s in (("a", "f"), ("b", "f"), ("7", "T")))
    crossed = [(seven * 16777619 & 0xFFFFFFFFFFFFFFFF ^ other) & MASK for other in (a, b)]
    assert (example.label, example.importance, float(example.squares)) == (0.5, 2.0, 2.0 * (4.0 + 0.25) - 0.25 + 2.25)
    assert [i for i, _ in example.features] == [a & MASK, b & MASK, seven & MASK, CONSTANT & MASK, *crossed]
    np.testing.assert_allclose([x for _, x in example.features], [2.0, 0.5, 1.0, 1.0, 2.0, 0.5], rtol=1e-15)


def test_the_tools_lambert_approximation_steps_the_wrong_way() -> None:
    """A small step on a positive example lowers its prediction, in the tool as in the oracle; W itself does not."""
    command = "--loss_function logistic --invariant --power_t 0 -l 0.000001"
    ours, workspace = learner_of(Options(command), np.float32), vowpalwabbit.Workspace(f"{command} --quiet")
    example = read_line("1 |f a", np.float32, 18)
    ours.learn(example, held_out=False)
    workspace.learn("1 |f a")
    (index, _), *_ = example.features
    assert isinstance(ours, Descent)
    assert workspace.get_weight(index) == float(ours.row(index)[0]) < 0.0
    assert lambert_minus(np.float64(1.000002)) > 0.0
    papers = make("invariant", 1, "logistic", eta=0.000001)
    papers.update({0: 1.0}, 1.0)
    assert papers.weights()[0] == pytest.approx(0.0000005, rel=1e-3)
    workspace.finish()


SAME = [
    ("--ftrl --l1 0.3 --l2 0.1", "ftrl_proximal", {"alpha": 0.5, "beta": 1.0, "l1": 0.3, "l2": 0.1}, True),
    ("--pistol --loss_function hinge", "pistol", {}, True),
    ("--coin", "coin", {}, True),
    ("--coin --loss_function hinge", "coin", {}, True),
    ("--sgd -l 0.05", "ogd", {"eta": powers(0.05)}, False),
    ("--adaptive -l 0.05", "adagrad", {"eta": 0.05}, False),
    ("--normalized -l 0.05", "normalized", {"eta": root(0.05)}, False),
    ("--invariant --power_t 0 -l 0.05", "invariant", {"eta": 0.05}, True),
    ("--invariant --power_t 0 -l 0.05 --loss_function hinge", "invariant", {"eta": 0.05}, True),
    (
        "--invariant --power_t 0 -l 0.05 --loss_function quantile --quantile_tau 0.3",
        "invariant",
        {"eta": 0.05},
        True,
    ),
    ("--invariant --power_t 0 -l 0.05 --loss_function poisson", "invariant", {"eta": 0.05}, True),
    ("--sgd --power_t 0 -l 0.05 --loss_function logistic", "ogd", {"eta": constant(0.05)}, True),
]


def as_papers_have_it(options: Options) -> Loss:
    """The loss as the papers have it: squared without its half."""
    name = options.given.loss_function
    if name == "squared":
        return make_loss(name, factor=2.0)
    return make_loss(name, tau=options.given.quantile_tau) if name == "quantile" else make_loss(name)


@pytest.mark.parametrize(("command", "name", "hyper", "weighted"), SAME)
def test_in_float64_the_tool_is_the_papers_where_they_mean_the_same(
    command: str, name: str, hyper: dict[str, float], weighted: bool
) -> None:
    """Two oracles written apart agree to 1e-9: predictions, example by example."""
    options, rng = Options(command), np.random.default_rng(11)
    tool, papers = learner_of(options, np.float64), make(name, 4, as_papers_have_it(options), **hyper)
    tool.low, tool.high = np.float64(-1e9), np.float64(1e9)
    scales = np.array([3.0, 0.5, 1.0, 2.0])
    for t in range(60):
        values = scales if t == 0 else scales * rng.uniform(-0.9, 0.9, size=4)  # the first example has the scales
        x = {i: float(v) for i, v in enumerate(values)}
        y = abs(float(rng.choice([-1.0, 1.0]))) * (t % 3) if "poisson" in command else float(rng.choice([-1.0, 1.0]))
        h = float(rng.uniform(0.5, 2.0)) if weighted else 1.0
        features = [(i, np.float64(v)) for i, v in x.items()]
        squares = np.float64(sum(v * v for v in x.values()))
        predicted = papers.predict(x, h)
        assert learned(tool, VwExample(np.float64(y), np.float64(h), features, squares)) == pytest.approx(
            predicted, rel=1e-9, abs=1e-9
        )
        papers.update(x, y, h)


def learned(tool: Learner, example: VwExample) -> float:
    """The prediction before the update."""
    return float(tool.learn(example, held_out=False))
