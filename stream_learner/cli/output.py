"""Prints results on stdout and errors on stderr, for people and for scripts. Secrets never come here."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from stream_learner.adapters.telemetry.logs import get_logger, logs_as_json
from stream_learner.errors import BrokenInvariant, ConfigError, StreamLearnerError, operator_action
from stream_learner.version import __version__

Fields = Mapping[str, Any]


def print_json(value: Any) -> None:
    """Print one JSON value on stdout; on one line if stdout is no terminal."""
    typer.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, default=str, ensure_ascii=False))


def print_table(lines: Sequence[Fields], *, title: str = "", as_json: bool = False) -> None:
    """Print lines of the same fields: as a boxed table on a terminal, as columns of text elsewhere, or as a JSON
    list."""
    if as_json:
        print_json([dict(line) for line in lines])
        return
    if not lines:
        typer.echo(f"{title}: nothing" if title else "nothing")
        return
    cells = [
        [name.replace("_", " ") for name in lines[0]],
        *([_cell(value) for value in line.values()] for line in lines),
    ]
    if sys.stdout.isatty():
        _print_boxed(cells, title)
        return
    for text in [title] * bool(title) + aligned(cells):
        typer.echo(text)


def aligned(lines: Sequence[Sequence[str]], *, right_from: int | None = None) -> list[str]:
    """Align cells in columns, each as wide as its widest cell, two spaces apart. Nothing is cut or wrapped.

    right_from: the first column that is aligned to the right, as figures are.

    >>> aligned([["check", "failures"], ["order", "0"]], right_from=1)
    ['check  failures', 'order         0']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = len(widths) if right_from is None else right_from
    return [
        "  ".join(
            cell.rjust(width) if place >= right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _print_boxed(cells: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*cells[0], title=title or None, title_justify="left")
    for line in cells[1:]:
        table.add_row(*line)
    Console(markup=False, emoji=False, highlight=False).print(table)


def print_fields(fields: Fields, *, as_json: bool = False) -> None:
    """Print the fields of one thing, a line each, or as a JSON object."""
    if as_json:
        print_json(dict(fields))
        return
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}  {_cell(value)}")


def print_error(error: BaseException, *, as_json: bool = False) -> int:
    """Print an error on stderr: what was found, what to do, and its place in docs/; as a log event if logs are JSON,
    as the same fields if only the answer was to be JSON. Returns the exit code."""
    if logs_as_json():
        return _log_error(error)
    if as_json:
        fields = _fields_of(error)
        _print_stopped(**fields)
        return int(fields["exit_code"])
    if isinstance(error, StreamLearnerError) and not isinstance(error, BrokenInvariant):
        typer.secho(f"error: {error.message}", err=True, fg="red")
        if isinstance(error, ConfigError) and len(error.problems) > 1:
            for problem in error.problems:
                typer.echo(f"  - {problem}", err=True)
        typer.echo(f"what to do: {error.action}", err=True)
        typer.echo(f"more: docs/errors.md#{type(error).__name__.lower()}", err=True)
        return error.exit_code
    traceback.print_exception(error)
    typer.secho(f"error: this is a bug in stream-learner {__version__}", err=True, fg="red")
    typer.echo(f"what to do: {operator_action(BrokenInvariant)}", err=True)
    return BrokenInvariant.exit_code


def print_usage_error(error: Any) -> int:
    """Print a wrong command line, a TyperException, as `print_error` does an error where the answer was to be JSON."""
    _print_stopped(
        error="UsageError",
        message=error.format_message(),
        action="Ask the command with --help.",
        exit_code=error.exit_code,
    )
    return int(error.exit_code)


def _print_stopped(**fields: Any) -> None:
    typer.echo(json.dumps({"level": "error", "event": "stopped", **fields}, ensure_ascii=False), err=True)


def _log_error(error: BaseException) -> int:
    log = get_logger("cli")
    if not isinstance(error, StreamLearnerError):
        log.error("bug", error=str(error), action=operator_action(BrokenInvariant), exc_info=error)
        return BrokenInvariant.exit_code
    log.error("stopped", **_fields_of(error))
    return error.exit_code


def _fields_of(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, StreamLearnerError):
        code = BrokenInvariant.exit_code
        return {"error": "bug", "message": repr(error), "action": operator_action(BrokenInvariant), "exit_code": code}
    fields: dict[str, Any] = {"error": type(error).__name__, "message": error.message, "action": error.action}
    if isinstance(error, ConfigError):
        fields["problems"] = list(error.problems)
    return {**fields, "exit_code": error.exit_code}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return "" if value is None else str(value)
