"""Configurations: the bytes of a file, variables of the environment, `--set`.

The first byte of an input tells what the text is: a file, or lines of overrides or of variables, over a file or over
lines of the same content. The meaning of settings is not checked: an accepted configuration must write out the settings
that were given, and be usable.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import mutated
from proofs.fuzz.target import Target, Wrong
from stream_learner.config.checked import Config
from stream_learner.config.load import ENVIRONMENT_PREFIX, load_config
from stream_learner.config.yaml import read_yaml
from stream_learner.errors import ConfigError

FILE, OVERRIDES, VARIABLES = range(3)
OVER_FILE = 4
"""Added to the kind of lines that are applied over a file."""
BASE = b"model: m\nkafka: {bootstrap.servers: b}\ninput: {impressions: {topic: i}, clicks: {topic: c}}\n"
BASE_LINES = ("model=m", "kafka.bootstrap.servers=b", "input.impressions.topic=i", "input.clicks.topic=c")
BASE_VARIABLES = {line.partition("=")[0].upper().replace(".", "__"): line.partition("=")[2] for line in BASE_LINES}
BASE_VARIABLES["KAFKA__BOOTSTRAP_SERVERS"] = BASE_VARIABLES.pop("KAFKA__BOOTSTRAP__SERVERS")
_FILES_IN = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
_VALUES = (
    b"1", b"0", b"-1", b"1.5", b"10m", b"5s", b"1GiB", b"1e400", b".nan", b"true", b"null", b"", b"~", b"[]", b"{}",
    b"[a, b]", b"{a: 1}", b"x" * 300, b"'", b'"', b"&a b", b"*a", b"!!python/object:os.system x", b"<<: {}", b"%",
    b"- -", b"\x00", b"\xff", "é".encode(), b"2026-01-01", b"99999999999999999999", b"0x10", b"{file: /nowhere}",
    b"{env: NO}",
    b"[[a, b], [c]]", b"ftrl_proximal", b"adagrad", b"squared", b"? a", b"|", b">-", b"a: b", b"[" * 20, b"{a: " * 20,
)  # fmt: skip


class Configuration(Target):
    """Settings from all three places they come from."""

    name = "configuration"
    batch_inputs = 20

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._texts = [data[1:] for data in corpus if data[:1] == bytes((FILE,))] or [BASE]
        self._sections = [section for text in self._texts for section in _sections(text)]
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-configuration-", dir=_FILES_IN)
        self._file = Path(self._folder.name) / "config.yaml"
        self._base = Path(self._folder.name) / "base.yaml"
        self._base.write_bytes(BASE)
        names = _names(load_config(self._base))
        self._names = [name.encode() for name in names if not name.startswith("kafka")]

    def make(self, rng: Random) -> bytes:
        kind = rng.choice((FILE, OVERRIDES, VARIABLES))
        if kind == FILE:
            return bytes((kind,)) + self._text(rng)
        lines = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            name = rng.choice(self._names)
            name = mutated(rng, name, self._names) if rng.random() < 0.2 else name
            value = rng.choice(_VALUES)
            value = mutated(rng, value, _VALUES) if rng.random() < 0.3 else value
            lines.append((name if kind == OVERRIDES else name.upper().replace(b".", b"__")) + b"=" + value)
        return bytes((kind + (OVER_FILE if rng.random() < 0.1 else 0),)) + b"\n".join(lines)

    def _text(self, rng: Random) -> bytes:
        """A file of the project, or, since YAML is slow, the smallest file with one more section."""
        text = rng.choice(self._texts) if rng.random() < 0.02 else BASE + rng.choice(self._sections)
        if rng.random() < 0.5:
            return mutated(rng, text, self._texts)
        lines = text.split(b"\n")
        at = rng.randrange(len(lines))
        name, colon, _ = lines[at].partition(b":")
        lines[at] = rng.choice(
            (name + colon + b" " + rng.choice(_VALUES), b" " + lines[at], lines[at] + b"\n" + lines[at])
        )
        return b"\n".join(lines)

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(data[0], data[1:]) for data in inputs if data)

    def _check(self, kind: int, text: bytes) -> bool:
        try:
            config = self._load(kind, text)
        except ConfigError as error:
            if not error.problems:
                raise Wrong("a configuration was refused without a finding") from None
            return False
        if kind == FILE:
            _check_everything_is_there(read_yaml(text.decode()).data, config)
        _check_usable(config)
        return True

    def _load(self, kind: int, text: bytes) -> Config:
        if kind % OVER_FILE not in (OVERRIDES, VARIABLES):
            self._file.write_bytes(text)
            return load_config(self._file, environ={})
        lines, base = text.decode("utf-8", "surrogateescape").split("\n"), self._base if kind & OVER_FILE else None
        if kind % OVER_FILE == OVERRIDES:
            return load_config(base, environ={}, overrides=lines if base else (*BASE_LINES, *lines))
        given = dict(line.partition("=")[::2] for line in lines)
        given = given if base else {**BASE_VARIABLES, **given}
        return load_config(base, environ={ENVIRONMENT_PREFIX + name: value for name, value in given.items()})


def _sections(text: bytes) -> list[bytes]:
    """The top-level sections of a file, without those of the smallest file."""
    parts = [b"".join(part) for part in _parts(text.splitlines(keepends=True))]
    return [part for part in parts if not part.startswith((b"model:", b"kafka:", b"input:"))]


def _parts(lines: list[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    for line in lines:
        if line[:1].isalpha():
            found.append([])
        if found:
            found[-1].append(line)
    return found


def _names(config: Config) -> list[str]:
    """The paths of all settings."""

    def below(value: Any, path: tuple[str, ...]) -> list[str]:
        if isinstance(value, dict) and value:
            return [name for key, inner in value.items() for name in below(inner, (*path, key))]
        return [".".join(path)]

    return below(config.shown(), ())


def _check_everything_is_there(written: Any, config: Config) -> None:
    """Raise Wrong for a name that was written and had no effect."""
    shown = config.shown()
    for section, settings in written.items():
        if section not in shown:
            raise Wrong(f"{section} was taken and means nothing")
        if isinstance(settings, dict) and section != "kafka":
            missing = [name for name in settings if name not in shown[section]]
            if missing:
                raise Wrong(f"{section}.{missing[0]} was taken and means nothing")


def _check_usable(config: Config) -> None:
    """Check that an accepted configuration can be written, read again as equal, and made into the objects of `core`."""
    written = config.written()
    again = Config.model_validate(written)
    if again.written() != written:
        raise Wrong("a configuration that is another once it was written down")
    for make in (config.join_spec, config.event_specs, config.optimizer, config.loss, config.feature_spec):
        make()
