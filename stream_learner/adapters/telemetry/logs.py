"""Logs: events with fields on stderr, as text for people on a terminal and as JSON elsewhere.

Each line has time, level, model and role. stdout is left to results. Nothing is logged per input record.
"""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import dataclass
from typing import IO, Any, TextIO, TypeAlias, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_ROOT = "stream_learner"

Logger: TypeAlias = FilteringBoundLogger
"""The type of `get_logger`'s result: a method per level; keyword arguments become fields; `bind` adds fields for
good."""


@dataclass
class _State:
    as_json: bool = False
    configured: bool = False


_state = _State()


def configure_logging(
    *, log_format: str = "auto", log_level: str = "info", model: str = "", stream: IO[str] | None = None
) -> None:
    """Send every log of the process, and every warning of Python, to `stream` (default stderr).

    A later call replaces an earlier one.

    log_format: "json", "console", or "auto" (console where the stream is a terminal). log_level: least level
    of our own events; those of other libraries are shown from warning on.
    """
    out = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _adds_model(model),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    as_json = log_format == "json" or (log_format == "auto" and not out.isatty())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_as_role],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_json_chain() if as_json else _console_chain(out)),
            ],
        )
    )
    _state.as_json, _state.configured = as_json, True
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(_ROOT).setLevel(log_level.upper())
    warnings.showwarning = _log_warning


def get_logger(role: str, **fields: Any) -> Logger:
    """A logger whose events carry `role` and `fields`: `log.info("tick folded", tick=12, examples=800)`."""
    logger = structlog.stdlib.get_logger(f"{_ROOT}.{role}", role=role, **fields)
    return cast(Logger, logger)


def get_library_logger(role: str, **fields: Any) -> Logger:
    """A logger for code that may run inside somebody else's program.

    Until `configure_logging` is called, events go where that program's `logging` sends them; structlog alone would
    print them on stdout.
    """
    if _state.configured:
        return get_logger(role, **fields)
    logger = structlog.wrap_logger(
        logging.getLogger(f"{_ROOT}.{role}"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        **fields,
    )
    return cast(Logger, logger)


def is_configured() -> bool:
    """Whether `configure_logging` was called."""
    return _state.configured


def logs_as_json() -> bool:
    """Whether logs are JSON lines; others who write to stderr should then write JSON too."""
    return _state.as_json


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a warning as one event; Python alone prints two lines without a time.

    A warning for a given file goes there.
    """
    if file is not None:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
        return
    fields = {"category": category.__name__, "message": str(message), "file": filename, "line": lineno}
    get_logger("python").warning("python_warning", **fields)


def _adds_model(model: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if model:
            event.setdefault("model", model)
        return event

    return add


def _name_as_role(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Give records of the standard library's loggers a role: the name of their logger."""
    event.setdefault("role", event["_record"].name.removeprefix(f"{_ROOT}."))
    return event


def _json_chain() -> list[Processor]:
    return [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer(default=str)]


def _console_chain(out: IO[str]) -> list[Processor]:
    plain = structlog.dev.plain_traceback
    return [
        structlog.dev.ConsoleRenderer(
            colors=out.isatty(), timestamp_key="time", exception_formatter=plain, pad_event_to=0
        )
    ]


def _ordered(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put the fields that every line has first, then the event's own."""
    first = [name for name in ("time", "level", "model", "role", "event") if name in event]
    return {name: event[name] for name in first} | dict(event)
