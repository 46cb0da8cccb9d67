"""Configurations: the bytes of a file, variables of the environment, `--set`.

In: a file behind a byte that says what it is: a file, or lines of overrides or of variables. Out: Wrong.
This file must never look at what a setting means: what is taken must say again what was written, and be usable.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from fuzz.guard import Side
from fuzz.mutate import mutated
from fuzz.target import Target, Wrong
from stream_learner.config.load import ENVIRONMENT_PREFIX, load_config
from stream_learner.config.tree import Config
from stream_learner.config.yaml import read_yaml
from stream_learner.errors import ConfigError

FILE, OVERRIDES, VARIABLES = range(3)
BASE = b"model: m\nkafka: {bootstrap.servers: b}\ninput: {impressions: {topic: i}, clicks: {topic: c}}\n"
_VALUES = (
    b"1", b"0", b"-1", b"1.5", b"10m", b"5s", b"1GiB", b"1e400", b".nan", b"true", b"null", b"", b"~", b"[]", b"{}",
    b"[a, b]", b"{a: 1}", b"x" * 300, b"'", b'"', b"&a b", b"*a", b"!!python/object:os.system x", b"<<: {}", b"%",
    b"- -", b"\x00", b"\xff", "é".encode(), b"2026-01-01", b"99999999999999999999", b"0x10", b"{file: /nowhere}",
    b"{env: NO}",
    b"[[a, b], [c]]", b"ftrl_proximal", b"adagrad", b"squared", b"? a", b"|", b">-", b"a: b", b"[" * 500, b"{a: " * 200,
)  # fmt: skip


class Configuration(Target):
    """Settings from all three places they come from."""

    name = "configuration"
    batch_inputs = 20

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._texts = [data[1:] for data in corpus if data[:1] == bytes((FILE,))] or [BASE]
        self._names = [name.encode() for name in _names(load(self._with_base())) if not name.startswith("kafka")]
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-configuration-")

    def _with_base(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-configuration-"))
        (folder / "base.yaml").write_bytes(BASE)
        return folder / "base.yaml"

    def make(self, rng: Random) -> bytes:
        kind = rng.choice((FILE, OVERRIDES, VARIABLES))
        if kind == FILE:
            return bytes((kind,)) + self._file(rng)
        lines = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            name = rng.choice(self._names)
            name = mutated(rng, name, self._names) if rng.random() < 0.2 else name
            value = rng.choice(_VALUES)
            value = mutated(rng, value, _VALUES) if rng.random() < 0.3 else value
            lines.append((name if kind == OVERRIDES else name.upper().replace(b".", b"__")) + b"=" + value)
        return bytes((kind,)) + b"\n".join(lines)

    def _file(self, rng: Random) -> bytes:
        text = rng.choice(self._texts)
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
        return sum(self._check(data[0] % 3, data[1:]) for data in inputs if data)

    def _check(self, kind: int, text: bytes) -> bool:
        file = Path(self._folder.name) / "config.yaml"
        file.write_bytes(text if kind == FILE else BASE)
        lines = text.decode("utf-8", "surrogateescape").split("\n") if kind != FILE else []
        environ = dict(line.partition("=")[::2] for line in lines) if kind == VARIABLES else {}
        environ = {ENVIRONMENT_PREFIX + name: value for name, value in environ.items()}
        try:
            config = load_config(file, environ=environ, overrides=lines if kind == OVERRIDES else ())
        except ConfigError as error:
            if not error.problems:
                raise Wrong("a configuration was refused without a finding") from None
            return False
        if kind == FILE:
            _check_everything_is_there(read_yaml(text.decode()).data, config)
        _check_usable(config)
        return True


def load(file: Path) -> Config:
    """The configuration in a file."""
    return load_config(file)


def _names(config: Config) -> list[str]:
    """The paths of all settings."""

    def below(value: Any, path: tuple[str, ...]) -> list[str]:
        if isinstance(value, dict) and value:
            return [name for key, inner in value.items() for name in below(inner, (*path, key))]
        return [".".join(path)]

    return below(config.shown(), ())


def _check_everything_is_there(written: Any, config: Config) -> None:
    """Raise Wrong for a name that was written and means nothing."""
    shown = config.shown()
    for section, settings in written.items():
        if section not in shown:
            raise Wrong(f"{section} was taken and means nothing")
        if isinstance(settings, dict) and section != "kafka":
            missing = [name for name in settings if name not in shown[section]]
            if missing:
                raise Wrong(f"{section}.{missing[0]} was taken and means nothing")


def _check_usable(config: Config) -> None:
    """What was taken can be written down, read again as the same, and made into what `core` needs."""
    again = Config.model_validate(config.written())
    if again.written() != config.written():
        raise Wrong("a configuration that is another once it was written down")
    for make in (config.join_spec, config.event_specs, config.optimizer, config.loss, config.feature_spec):
        make()
