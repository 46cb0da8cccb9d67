"""The command line: options, what goes to which stream, errors and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from stream_learner import errors
from stream_learner.adapters.telemetry.logs import configure_logging
from stream_learner.cli import app, main
from stream_learner.cli.groups import GROUPS
from stream_learner.cli.options import load_for_command, load_for_role, seconds
from stream_learner.cli.output import print_error, print_fields, print_table
from stream_learner.config import Config
from tests.children import run_python

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MINIMAL = str(CONFIGS / "minimal.yaml")


@dataclass
class Ended:
    """The exit code and the output of a command that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, with a wide terminal and no settings around."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("STREAM_LEARNER_CONFIG", raising=False)

    def run(*arguments: str) -> Ended:
        code: Any = 0
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return Ended(int(code or 0), out, err)

    return run


def test_help_names_every_command(run: Run) -> None:
    """The first thing a newcomer types answers on stdout and ends well."""
    ended = run("--help")
    assert ended.code == 0
    shown = re.findall(r"^  ([a-z][a-z-]*)  +\S", ended.out, re.MULTILINE)
    assert shown == [name for names in GROUPS.values() for name in names]
    assert set(shown) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert ended.out.index("Begin here:") < ended.out.index("Roles:")


def test_every_command_and_option_has_a_help_text() -> None:
    """No command and no option is left unexplained."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, str | None]]:
        yield path, command.help
        for parameter in command.params:
            yield f"{path} {parameter.name}", getattr(parameter, "help", "")
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}")

    silent = [path for path, text in walk(typer.main.get_command(app), "stream-learner") if not text]
    assert not silent


def test_the_version_is_printed(run: Run) -> None:
    """--version prints name and version."""
    assert re.fullmatch(r"stream-learner \d+\.\d+\.\d+\S*\n", run("--version").out)


def test_a_wrong_command_line_ends_with_2(run: Run) -> None:
    """Unknown commands and values that do not parse are wrong usage, not errors of ours."""
    assert run("jion").code == 2
    ended = run("demo", "--duration", "soon")
    assert ended.code == 2
    assert "duration" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("doctor", "--jsn", "--json"), 2, "No such option: --jsn"),
        (("gate", "skip", "--json"), 2, "--to"),
        (("doctor", "--impressions", "a", "--json"), 10, "one topic alone"),
        (
            ("doctor", "--impressions", "a", "--clicks", "b", "--bootstrap", "ann:geheim@kafka:1", "--json"),
            10,
            "password",
        ),
    ],
)
def test_with_json_every_error_is_json(run: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    """One line on stderr, a wrong command line too; a password in an address is in none."""
    ended = run(*arguments)
    found = json.loads(ended.err)
    assert (ended.code, ended.out, found["exit_code"], found["event"]) == (code, "", code, "stopped")
    assert words in json.dumps(found) and found["action"] and "geheim" not in ended.err


def test_a_configuration_that_can_work_is_ok(run: Run) -> None:
    """config check says ok and ends with 0."""
    assert run("config", "check", "-c", MINIMAL) == Ended(0, "ok\n", "")
    ended = run("config", "check", "-c", MINIMAL, "--json")
    assert json.loads(ended.out) == {"ok": True, "problems": [], "warnings": []}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("join.dedupe=29m", "join.dedupe is shorter than join.window (30m)"),
        ("join.dedupe=0", "join.dedupe is 0: "),
        ("join.agree=1", "join.agree is 1: "),
        ("join.dedupe=30m", ""),
    ],
)
def test_config_check_warns_of_what_was_hardly_meant(run: Run, setting: str, says: str) -> None:
    """On stderr, or in the JSON object; it is no failure."""
    ended = run("config", "check", "-c", MINIMAL, "--set", setting)
    assert (ended.code, ended.out) == (0, "ok\n")
    assert ended.err.startswith(f"warning: {says}") if says else ended.err == ""
    (warning,) = json.loads(run("config", "check", "-c", MINIMAL, "--set", setting, "--json").out)["warnings"] or [""]
    assert warning.startswith(says) and bool(warning) == bool(says)


VERIFICATION = "kafka.enable.ssl.certificate.verification"
NAMES = "kafka.ssl.endpoint.identification.algorithm"


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ("{security.protocol: ssl, enable.ssl.certificate.verification: false}", f"{VERIFICATION} is false"),
        ('{security.protocol: SASL_SSL, enable.ssl.certificate.verification: "F"}', f"{VERIFICATION} is false"),
        ("{security.protocol: sasl_ssl, ssl.endpoint.identification.algorithm: none}", f"{NAMES} is none"),
        ("{security.protocol: ssl, ssl.endpoint.identification.algorithm: {env: CHECKED}}", f"{NAMES} is none"),
        ("{security.protocol: ssl, ssl.endpoint.identification.algorithm: https}", ""),
        ("{security.protocol: plaintext, enable.ssl.certificate.verification: false}", ""),
    ],
)
def test_certificates_that_are_not_checked_are_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kafka: str, says: str
) -> None:
    """By `config check`, and in the log of every command of a role."""
    monkeypatch.setenv("CHECKED", "none")
    options = kafka.replace(
        "{",
        "{bootstrap.servers: 127.0.0.1:1, sasl.mechanism: PLAIN, sasl.username: a, sasl.password: {env: CHECKED}, ",
        1,
    )
    settings = [f"kafka={options}", "telemetry.log_format=json"]
    ended = run("config", "check", "-c", MINIMAL, "--json", *(part for one in settings for part in ("--set", one)))
    (warning,) = json.loads(ended.out)["warnings"] or [""]
    assert warning.startswith(says) and bool(warning) == bool(says)
    capsys.readouterr()
    load_for_role(Path(MINIMAL), settings)
    said = list(map(json.loads, capsys.readouterr().err.splitlines()))
    assert [(line["event"], line["level"]) for line in said] == [("certificates_not_checked", "warning")] * bool(says)
    assert all(f"{line['option']} {line['reason']}" == warning for line in said)


def test_all_findings_are_shown(run: Run) -> None:
    """config check lists every finding on stderr and ends with the code of ConfigError."""
    ended = run("config", "check", "-c", MINIMAL, "--set", "join.windw=1m", "--set", "snapshots.ring=1")
    assert ended.code == errors.ConfigError.exit_code
    assert ended.out == ""
    assert "did you mean join.window?" in ended.err
    assert "snapshots.ring: must be 4 to 65536, not 1" in ended.err
    assert "what to do:" in ended.err


def test_findings_can_be_read_by_a_program(run: Run) -> None:
    """config check --json prints the findings as one object, and nothing else on stdout."""
    ended = run("config", "check", "-c", MINIMAL, "--set", "join.tick=2h", "--json")
    assert ended.code == 10
    found = json.loads(ended.out)
    assert found["ok"] is False
    assert found["problems"][0].startswith("join.tick")


def test_kafka_options_are_checked_by_the_kafka_client(run: Run) -> None:
    """Options that librdkafka does not know, and those this program sets itself, are refused before a start."""
    assert "kafka.fetch.wat" in run("config", "check", "-c", MINIMAL, "--set", "kafka.fetch.wat=1").err
    assert "kafka.acks" in run("config", "check", "-c", MINIMAL, "--set", "kafka.acks=1").err


def test_findings_of_the_kafka_client_are_listed_with_the_others(run: Run) -> None:
    """A setting out of range, options with the wrong value, and a secret that is missing, in one list."""
    given = ("join.tick=2h", "kafka.enable.idempotence=false", "kafka.acks=1", "kafka.sasl.password={file: /nowhere/x}")
    overrides = [part for setting in given for part in ("--set", setting)]
    found = json.loads(run("config", "check", "-c", MINIMAL, *overrides, "--json").out)["problems"]
    names = [problem.split(":")[0] for problem in found]
    assert sorted(names) == ["join.tick", "kafka.acks", "kafka.enable.idempotence", "kafka.sasl.password"]
    assert all("--set" in problem for problem in found)


def test_a_configuration_can_be_checked_without_its_secrets(run: Run) -> None:
    """--no-secrets leaves out what is not mounted here; without it the missing file is named."""
    secret = ("--set", "kafka.sasl.password={file: /nowhere/password}")
    assert run("config", "check", "-c", MINIMAL, *secret, "--no-secrets").code == 0
    ended = run("config", "check", "-c", MINIMAL, *secret)
    assert ended.code == 10
    assert "/nowhere/password" in ended.err


def test_no_configuration_says_where_to_begin(run: Run) -> None:
    """A command without any setting points at the example."""
    ended = run("config", "check")
    assert ended.code == 10
    assert "configs/minimal.yaml" in ended.err


def test_the_configuration_file_may_come_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """STREAM_LEARNER_CONFIG names the file, STREAM_LEARNER__… single settings."""
    monkeypatch.setenv("STREAM_LEARNER_CONFIG", MINIMAL)
    monkeypatch.setenv("STREAM_LEARNER__JOIN__WINDOW", "45s")
    assert json.loads(run("config", "show", "--json").out)["join"]["window"] == "45s"


def test_show_prints_yaml_without_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """config show prints the whole tree, defaults included, secrets as ***."""
    monkeypatch.setenv("STREAM_LEARNER__KAFKA__SASL_PASSWORD", "hunter2")
    shown = run("config", "show", "-c", MINIMAL).out
    tree = yaml.safe_load(shown)
    assert "hunter2" not in shown
    assert tree["kafka"]["sasl.password"] == "***"
    assert tree["join"]["window"] == "30m"


def test_the_schema_is_json(run: Run) -> None:
    """config schema prints a JSON schema with every section."""
    schema = json.loads(run("config", "schema").out)
    assert {"model", "kafka", "input", "join", "features", "learner"} <= set(schema["properties"])


@pytest.mark.parametrize("kind", list(errors.all_errors()), ids=lambda kind: kind.__name__)
def test_an_error_says_what_to_do(kind: type[errors.StreamLearnerError], capsys: pytest.CaptureFixture[str]) -> None:
    """Every error shows its message, an action and its place in the pages, and ends with its own exit code."""
    code = print_error(kind("something was found", action="" if errors.operator_action(kind) else "act"))
    err = capsys.readouterr().err
    assert code == kind.exit_code
    assert "something was found" in err
    assert re.search(r"what to do: \w", err)
    if kind is not errors.Stop and kind is not errors.BrokenInvariant:
        page, anchor = err.splitlines()[-1].removeprefix("more: ").split("#")
        assert f'<a id="{anchor}"></a>{errors.meaning(kind)}' in (CONFIGS.parent / page).read_text(encoding="utf-8")


def test_a_bug_is_called_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """What we did not raise on purpose shows its traceback and is never blamed on the input."""
    with pytest.raises(KeyError) as caught:
        {}["nothing"]
    assert print_error(caught.value) == 70
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "this is a bug in stream-learner" in err


def test_errors_are_json_where_logs_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Where logs are JSON lines, an error is one more of them."""
    configure_logging(log_format="json", model="ctr")
    try:
        assert print_error(errors.TopicMissing("no topic x")) == 21
        line = json.loads(capsys.readouterr().err)
    finally:
        configure_logging(log_format="console")
    assert (line["error"], line["message"], line["model"]) == ("TopicMissing", "no topic x", "ctr")
    assert line["action"]
    assert line["exit_code"] == 21


@pytest.mark.parametrize(("load_config", "as_json"), [(load_for_role, True), (load_for_command, False)])
def test_a_command_that_ends_by_itself_writes_text_on_a_pipe(
    capsys: pytest.CaptureFixture[str], load_config: Callable[..., Config], as_json: bool
) -> None:
    """A role writes JSON there, unless the format is set; a terminal gets text from both."""
    try:
        for log_format, is_json in (("auto", as_json), ("json", True), ("console", False)):
            load_config(Path(MINIMAL), [f"telemetry.log_format={log_format}"])
            assert print_error(errors.TopicMissing("no topic x")) == 21
            err = capsys.readouterr().err
            assert err.startswith("{" if is_json else "error: no topic x\n"), err
    finally:
        configure_logging(log_format="console")


def test_durations_of_options_may_lack_a_unit() -> None:
    """A number alone is seconds on the command line."""
    assert [seconds(text) for text in ("20", "1.5", "90s", "2m", "250ms")] == [20, 1.5, 90, 120, 0.25]
    with pytest.raises(typer.BadParameter):
        seconds("soon")


def test_rows_are_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """People and programs get the same rows."""
    rows = [{"feature": "site=news", "weight": 0.125}, {"feature": "ad=[b]x[/b]", "weight": None}]
    print_table(rows, title="weights")
    table = capsys.readouterr().out
    assert table == "weights\nfeature      weight\nsite=news    0.125\nad=[b]x[/b]\n"
    print_table(rows, as_json=True)
    assert json.loads(capsys.readouterr().out) == rows
    print_table([], title="weights")
    assert capsys.readouterr().out == "weights: nothing\n"


def test_rows_in_a_pipe_are_neither_cut_nor_boxed(capsys: pytest.CaptureFixture[str]) -> None:
    """However long a cell is: one line for each row, whole, in plain characters, columns one below the other."""
    rows = [{"check": "order", "that": "x" * 300, "failures": 0}, {"check": "balance", "that": "y", "failures": 12}]
    print_table(rows)
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["order", "x" * 300, "0"], ["balance", "y", "12"]]
    assert [line.index(cell) for line, cell in zip(lines, ("0", "12"), strict=True)] == [head.index("failures")] * 2
    assert "".join(lines).isascii()


def test_rows_on_a_terminal_are_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With lines around it, and no wider than the terminal."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_table([{"check": "order", "that": "word " * 40}], title="checks")
    lines = capsys.readouterr().out.splitlines()
    assert "checks" in lines[0]
    assert lines[1].startswith("┏") and max(len(line) for line in lines if line[0] in "┏┡└") == 60


def test_fields_are_lines_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One thing's fields for a person and for a program."""
    fields = {"version": 7, "pages_by_shard": [3, 4]}
    print_fields(fields)
    assert capsys.readouterr().out == "version         7\npages by shard  [3, 4]\n"
    print_fields(fields, as_json=True)
    assert json.loads(capsys.readouterr().out) == fields


def test_the_program_is_there_before_the_compiler_and_what_shows_pages() -> None:
    """`--help` and a wrong option need neither; numba alone takes half a second of processor time."""
    code = "import sys, stream_learner.cli.role_commands; print({'numba', 'rich.live'} & {*sys.modules})"
    assert run_python(code).stdout == "set()\n"
