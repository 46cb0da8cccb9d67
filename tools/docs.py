"""Writes what of `docs/` is made from the code: commands, configuration, metrics, errors, HTTP, flags of Vowpal Wabbit,
steps and crash tables of protocols.

Of a single setting it says what a change means later, and whether it is set first (`LATER`, `FIRST`), never anything
else: that is its description's place.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from stream_learner.adapters.http import openapi
from stream_learner.adapters.telemetry.metric_names import CATALOGUE
from stream_learner.config import Config
from stream_learner.config.optimizers import Optimizer
from stream_learner.config.paths import items_of, section_in, settings_of
from stream_learner.config.section import Section
from stream_learner.config.values import Between, format_duration_ms, format_size_bytes, format_start
from stream_learner.core.model.optimizers import OPTIMIZERS, sample_optimizer
from stream_learner.errors import Stop, StreamLearnerError, all_errors, meaning, operator_action
from stream_learner.evaluate.vw.flags import flag_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Made from the code by `make docs`; changes belong there. -->\n"

CONFIGURATION_INTRO = """# Configuration

One YAML file describes one model, and every role takes the same file. `configs/` has examples to begin with.

A setting's value is, the last one winning,

1. the default below,
2. what the file says (`-c FILE`, or the environment variable `STREAM_LEARNER_CONFIG`),
3. an environment variable: `STREAM_LEARNER__JOIN__WINDOW=10m` sets `join.window`; below `KAFKA__`, `_` stands for
   `.`, so that `STREAM_LEARNER__KAFKA__SASL_USERNAME` sets `sasl.username`,
4. `--set join.window=10m` on the command line.

A mapping given later (`--set 'features.fields={site: {missing: indicator}}'`) is merged into the one before it,
anything else replaces it.

- Durations carry their unit: `500ms`, `1.5s`, `10m`, `1h30m`, `7d`. Sizes are bytes or carry one: `512KiB`, `64MiB`.
- YAML is read as version 1.2 says: only `true` and `false` are booleans, dates stay text, names are not repeated.
- Everything is checked before anything starts: unknown names, types, ranges, what does not go together, and what the
  Kafka client thinks of its options. `stream-learner config check` lists all findings, `config show` the result,
  `config schema` a JSON schema for editors.

In the tables ★ marks the dozen that are set first, and `later` says what a change means once an example is learned
(before that [nearly every setting](operations.md#settings) may change):

- **any time**: restart the roles; it counts from then on. `topics` needs `stream-learner topics ensure --apply`.
- **once**: it acts when the model or its topics are made, and never again.
- **begin anew**: it decides the examples. Go on under the same name with
  [`stream-learner begin-anew`](operations.md#beginning-anew), which keeps what was learned, or
  [train a model](backfill.md) under another name.
- **another name**: what was learned is bound to it. Set it with another `model` name, or
  [delete](operations.md#deleting-a-model) the model.

## Secrets

Any option below `kafka` may be `{file: PATH}` or `{env: NAME}` instead of a value; it is read when a client is made.
Values of `sasl.*` options and of whatever is called a password, secret, key or token are shown as `***` everywhere.

```yaml
kafka:
  bootstrap.servers: kafka:9093
  security.protocol: SASL_SSL
  sasl.mechanisms: SCRAM-SHA-512
  sasl.username: {env: KAFKA_USER}
  sasl.password: {file: /run/secrets/kafka-password}
```

Options that would break what the program promises (acknowledgements, isolation, assignment, offsets, group and
transactional ids) are refused with the reason.
"""

COMMANDS_INTRO = """# Commands

What `--help` says of each command of `stream-learner`. [Errors](errors.md) has the exit codes that they share;
codes of a command's own are in its text.

"""

METRICS_INTRO = """# Metrics

Served in Prometheus's text format at `/metrics` on `telemetry.http_port`, beside `/healthz` (the role's loop turns)
and `/readyz` (it can do its work). Every metric carries the label `model`; the labels below come on top. The usual
`process_*` metrics are there too.

Consumer lag on the impressions is the join window, by design. Alert on
`stream_learner_joiner_lag_beyond_window_seconds`, never on consumer lag.
"""

ERRORS_INTRO = """# Errors and exit codes

An error says what was found and what to do; it never holds a secret. What a role does by itself is in its family:

- **RetryLater**: it waits and tries again, and says so once. One-shot commands end with the exit code.
- **Stop**: it ends, because a person must act. Nothing is damaged, and starting again is always safe.
- **BrokenInvariant**: a bug of this program.

Other exit codes: 0 done, also after SIGINT or SIGTERM; 2 wrong command line; 130 and 143 stopped at once by a second
signal. Records that cannot be read are not errors: they are counted and go to the dead-letter topic.
"""

HTTP_INTRO = """# HTTP

What `stream-learner serve` answers. [Predictions over HTTP](serving.md) has examples, limits and what to do about an
error. Bodies are JSON. With `serve.token` only the paths without 401 are open to everyone. A path that is not here gets
404, a method that is not here 405; HEAD goes wherever GET does.
"""

OPTIMIZERS_INTRO = """Each optimizer with its hyper-parameters and their defaults; others are refused. Where weights of
features that no example had change all the same (with `vw`, if it has a penalty), each publication is the whole model:
its bytes, and what a scorer does to apply it, grow with the model and not with what changed, so give
`snapshots.interval` time enough. Those that can only be evaluated cannot be the optimizer of a learner.
"""

VW_FLAGS_INTRO = """# Flags of Vowpal Wabbit

What `stream-learner evaluate --vw "FLAGS"` takes, with the defaults of Vowpal Wabbit 9.11. Any other flag is refused.
With several of the flags that choose a part of the default update, exactly these parts are on.
"""

LATER = {
    "any time": (
        *("", "features.max_rows_per_field"),
        *(f"input.{side}.{name}" for side in ("impressions", "clicks") for name in ("schema", "message")),
    ),
    "once": ("join.start", "topics.replication"),
    "begin anew": (
        *("input", "features"),
        *(f"join.{name}" for name in ("window", "skew", "dedupe", "keep_negatives", "lateness", "agree")),
        *("join.max_event_bytes", "join.max_skew"),
    ),
    "another name": (
        *("model", "join.tick", "learner.optimizer", "learner.loss", "snapshots.shards"),
        *(f"topics.{name}" for name in ("examples", "snapshots", "checkpoints", "control")),
    ),
    "as its meaning says": ("learner.max_rows",),
}
"""What a change means later, and of which settings: all below a path, but those that a longer path names."""
FIRST = frozenset(
    {
        *("model", "kafka", "input.time_unit", "join.window", "features.exclude", "features.categorical"),
        *(f"input.{side}.{name}" for side in ("impressions", "clicks") for name in ("topic", "id", "time")),
    }
)
"""The settings that are set first."""
ROLE_TITLES = {"joiner": "Joiner", "learner": "Learner", "scorer": "Scorer", "serve": "Serve", "process": "All roles"}


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "commands.md": COMMANDS_INTRO + _commands(),
        "configuration.md": "\n".join([CONFIGURATION_INTRO, *_sections(Config, ()), ""]).replace("\n\n\n", "\n\n"),
        "metrics.md": "\n".join([METRICS_INTRO, *_metrics()]),
        "errors.md": "\n".join([ERRORS_INTRO, *_errors()]),
        "http.md": "\n".join([HTTP_INTRO, *_http(json.loads(openapi.FILE.read_text(encoding="utf-8"))), ""]),
        "vw-flags.md": VW_FLAGS_INTRO + "\n" + flag_table(),
    }


def main() -> None:
    """Write the pages."""
    DOCS.mkdir(exist_ok=True)
    for name, text in pages().items():
        (DOCS / name).write_text(NOTE + text, encoding="utf-8")
        print(f"docs/{name}")
    page = DOCS / "protocols.md"
    page.write_text(protocols(page.read_text(encoding="utf-8")), encoding="utf-8")


def protocols(text: str) -> str:
    """The page of protocols, with what stands between its marks made anew from the docstrings of the modules named."""

    def part(found: re.Match[str]) -> str:
        tree = ast.parse((DOCS.parent / "stream_learner" / found["module"]).read_text(encoding="utf-8"))
        made = {"steps": _steps, "crashes": _crashes}[found["what"]](ast.get_docstring(tree) or "")
        return f"<!-- {found['what']}: {found['module']} -->\n\n{made}\n\n<!-- /{found['what']} -->"

    return re.sub(r"(?s)<!-- (?P<what>steps|crashes): (?P<module>\S+) -->\n.*?\n<!-- /(?P=what) -->", part, text)


def _steps(text: str) -> str:
    """The numbered steps of a docstring."""
    lines = "\n".join(["", *(line.strip() for line in text.splitlines())])
    found = re.findall(r"\n(?:Step )?(\d\. .+(?:\n(?!(?:Step )?\d\. ).+)*)", lines)
    return "\n".join(textwrap.fill(" ".join(step.split()), 120, subsequent_indent="   ") for step in found)


def _crashes(text: str) -> str:
    """The table of a docstring."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|", text, re.M)
    )
    return _table(head, rows)


def _sections(section: type[Section], path: tuple[str, ...]) -> Iterator[str]:
    """The table of a section's own settings, then its subsections."""
    settings = settings_of(section)
    own = {name: info for name, info in settings.items() if section_in(info.annotation) is None}
    if path:
        yield f"\n## `{'.'.join(path)}`\n\n{_first_line(section)}\n"
    else:
        yield "## Top level\n"
    if own:
        rows = [
            (f"`{name}`", _type_text(info), _default_text(info), _meaning((*path, name), info), later((*path, name)))
            for name, info in own.items()
        ]
        yield _table(("setting", "value", "default", "meaning", "later"), rows)
    if section is Optimizer:
        yield "\n" + OPTIMIZERS_INTRO
        yield _table(("optimizer", "hyper-parameters", "state columns", "publication"), _optimizers())
    for name, info in settings.items():
        inner = section_in(info.annotation)
        if inner:
            yield from _sections(inner, (*path, name))
        items = items_of(info.annotation)
        if items:
            yield from _sections(items, (*path, name, "<name>"))


def _meaning(path: tuple[str, ...], info: FieldInfo) -> str:
    return "★ " * (".".join(path) in FIRST) + (info.description or "")


def later(path: tuple[str, ...]) -> str:
    """What it means to change a setting once an example is learned."""
    above = [".".join(path[:end]) for end in range(len(path) + 1)]
    return max((above.index(place), words) for words, places in LATER.items() for place in places if place in above)[1]


def _optimizers() -> Iterator[tuple[str, str, str, str]]:
    """A row for each optimizer of the registry."""
    for name, kind in OPTIMIZERS.items():
        optimizer = sample_optimizer(name)
        shown = ", ".join(f"`{field.name}`{_default_of(field)}" for field in fields(kind))
        cost = "the whole model" if optimizer.moves else "what changed"
        yield f"`{name}`", shown, ", ".join(optimizer.columns), cost if optimizer.streaming else "can only be evaluated"


def _default_of(field: Field[Any]) -> str:
    if field.default is MISSING:
        return " (needed)"
    if field.default is None:
        return " null"
    return f" {str(field.default).lower() if isinstance(field.default, bool) else field.default}"


def _first_line(section: type[Section]) -> str:
    return (section.__doc__ or "").strip().splitlines()[0]


def _type_text(info: FieldInfo) -> str:
    """The allowed values in words."""
    metadata = _metadata(info)
    between = next((m.func for m in metadata if isinstance(getattr(m, "func", None), Between)), None)
    optional = " or null" if type(None) in get_args(info.annotation) else ""
    choices = _choices(info.annotation)
    if choices:
        text = ", ".join(f"`{choice}`" for choice in choices)
    elif between:
        several = "list of values, each a " if get_origin(info.annotation) is list else ""
        text = f"{several}{_kind(metadata, info)}, {between.text}"
    else:
        text = _kind(metadata, info) + _numeric_range(metadata)
    return text + optional


def _metadata(info: FieldInfo) -> list[Any]:
    """The annotations of a field's type, those of the part that is not None included."""
    inner = [part for part in get_args(info.annotation) if part is not type(None)]
    of_parts = [m for part in inner for m in getattr(part, "__metadata__", ())]
    return [*info.metadata, *(m for found in of_parts for m in getattr(found, "metadata", (found,)))]


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal, also if it is one of several types."""
    found = [part for part in (annotation, *get_args(annotation)) if str(get_origin(part)) == "typing.Literal"]
    return get_args(found[0]) if found else ()


def _kind(metadata: Sequence[Any], info: FieldInfo) -> str:
    written = {
        format_duration_ms: "duration",
        format_size_bytes: "size",
        format_start: "`earliest`, `latest` or a moment",
    }
    functions = [getattr(m, "func", None) for m in metadata]
    found = [written[function] for function in functions if function in written]
    if found:
        return found[0]
    annotation = info.annotation
    if get_origin(annotation) in (list, dict):
        return "list" if get_origin(annotation) is list else "mapping"
    parts = {annotation, *(getattr(part, "__origin__", part) for part in get_args(annotation))}
    names = {bool: "`true` or `false`", str: "text", int: "whole number", float: "number"}
    return next((names[kind] for kind in names if kind in parts), "mapping")


def _numeric_range(metadata: Iterable[Any]) -> str:
    signs = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
    bounds = [f"{sign} {getattr(m, name):g}" for name, sign in signs for m in metadata if hasattr(m, name)]
    return f", {' and '.join(bounds)}" if bounds else ""


def _default_text(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    functions = {getattr(m, "func", None) for m in _metadata(info)}
    writer = next((w for w in (format_duration_ms, format_size_bytes) if w in functions), None)
    if value is PydanticUndefined or value is None:
        return "`null`"
    if writer and isinstance(value, list):
        return f"`[{', '.join(map(writer, value))}]`"
    if writer:
        return f"`[{', '.join(map(writer, value))}]`" if isinstance(value, list) else f"`{writer(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


@cache
def _commands() -> str:
    """What Typer writes of the program, with examples set as code and pages as links."""
    command = ["-m", "typer", "stream_learner.cli.role_commands", "utils", "docs", "--name", "stream-learner"]
    ended = subprocess.run([sys.executable, *command], cwd=DOCS.parent, capture_output=True, text=True, check=True)
    text = ended.stdout[ended.stdout.index("**Commands**") :].rstrip() + "\n"
    text = re.sub(r"\*\*Usage\*\*:\n\n```console\n.* COMMAND .*\n```\n\n", "", text)
    text = re.sub(r"(?<=\n\n)((?:\S+=\S+ |.* \| )?stream-learner .+)(?=\n\n)", r"```\n\1\n```", text)
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", text)


def _metrics() -> Iterator[str]:
    for role, title in ROLE_TITLES.items():
        rows = [
            (f"`{metric.full_name}`", metric.kind, ", ".join(metric.labels), metric.meaning)
            for metric in CATALOGUE
            if metric.role == role
        ]
        yield f"\n## {title}\n\n{_table(('metric', 'kind', 'labels', 'meaning'), rows)}"
    yield ""


def _errors() -> Iterator[str]:
    families = {StreamLearnerError, Stop}
    rows = [
        (
            str(kind.exit_code),
            f"`{kind.__name__}`",
            _family(kind),
            f'<a id="{kind.__name__.lower()}"></a>{meaning(kind)}',
            _sentence(operator_action(kind)),
        )
        for kind in sorted(all_errors(), key=lambda kind: kind.exit_code)
        if kind not in families
    ]
    yield _table(("exit code", "error", "family", "meaning", "what to do"), rows)
    yield ""


def _family(kind: type[StreamLearnerError]) -> str:
    base = kind.__mro__[1]
    return "" if base is StreamLearnerError else base.__name__


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _http(document: Mapping[str, Any]) -> Iterator[str]:
    """The tables of the server's document: operations, parameters, errors, headers, then each body."""
    parts = document["components"]
    rows = [
        (
            f"`{method.upper()} {path}`",
            operation["summary"],
            _body(operation.get("requestBody", {})),
            _answers(operation),
        )
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    yield _table(("request", "what it does", "its body", "answers"), rows)
    yield "\n## Parameters\n"
    yield _table(
        ("in the path", "meaning"), [(f"`{{{p['name']}}}`", p["description"]) for p in parts["parameters"].values()]
    )
    yield "\n## Errors\n"
    errors = parts["responses"].items()
    yield _table(
        ("status", "meaning", "its body", "headers"),
        [
            (code, given["description"], _body(given), ", ".join(f"`{name}`" for name in given.get("headers", ())))
            for code, given in errors
        ],
    )
    yield "\n## Headers\n"
    yield _table(
        ("header", "meaning"), [(f"`{name}`", given["description"]) for name, given in parts["headers"].items()]
    )
    yield "\n## Bodies\n\nA member that is not always there may be left out."
    for name, schema in parts["schemas"].items():
        yield f"\n### `{name}`\n"
        yield _table(("member", "value", "always", "meaning"), _members(schema))


def _body(given: Mapping[str, Any]) -> str:
    """A link to the body of a request or an answer, "" where it has none."""
    if "content" not in given:
        return ""
    name = given["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    return f"[{name}](#{name.lower()})"


def _answers(operation: Mapping[str, Any]) -> str:
    """The statuses of an operation, with a link to the body where it is not that of an error."""
    return ", ".join(f"{code} {_body(given)}".strip() for code, given in sorted(operation["responses"].items()))


def _members(schema: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str, str, str]]:
    """The members of a body, those of its members' own below them."""
    for name, member in schema["properties"].items():
        yield f"`{at}{name}`", _value_text(member), "yes" if name in schema["required"] else "", _words(member)
        inner, end = (member["items"], "[].") if "items" in member else (member, ".")
        if "properties" in inner:
            yield from _members(inner, f"{at}{name}{end}")


def _value_text(schema: Mapping[str, Any]) -> str:
    """What a member of a body may be."""
    if "items" in schema:
        return f"list{' or null' * ('null' in schema['type'])}, each {_value_text(schema['items'])}"
    if "oneOf" in schema:
        return " or ".join(map(_value_text, schema["oneOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum") or [schema["const"]])
    kinds = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`"}
    types = schema.get("type", "anything")
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = "" if low is None else f", {low} to {high}" if high is not None else f", >= {low}"
    return " or ".join(kinds.get(kind, kind) for kind in ([types] if isinstance(types, str) else types)) + bounds


def _words(schema: Mapping[str, Any]) -> str:
    """The description of a member, or of what it holds."""
    parts = [*schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else ())]
    return schema.get("description") or " ".join(filter(None, map(_words, parts)))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
