"""The flags of Vowpal Wabbit that `--vw` takes, as a table, and what a command line gives for each.

`vw.command` decides what flags mean together.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stream_learner.errors import ConfigError


class Takes(Enum):
    """The kind of value that follows a flag."""

    NOTHING = ""
    NUMBER = "number"
    COUNT = "whole number"
    WORD = "text"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag. names: with dashes, the long one first. many: it may be repeated. used: False if it has no effect
    here."""

    names: tuple[str, ...]
    takes: Takes
    meaning: str
    many: bool = False
    used: bool = True

    @property
    def key(self) -> str:
        """The long name without dashes."""
        return self.names[0].lstrip("-")


def _flags() -> Iterator[Flag]:
    n, x, i, w = Takes.NOTHING, Takes.NUMBER, Takes.COUNT, Takes.WORD
    yield Flag(("--data", "-d"), w, "file of examples, also without the flag", many=True)
    yield Flag(("--sgd",), n, "plain descent: neither adaptive nor normalized nor invariant")
    yield Flag(("--adaptive",), n, "a rate for each feature; given alone, only this part of the default")
    yield Flag(("--normalized",), n, "scales of features do not matter; given alone, only this part of the default")
    yield Flag(("--invariant",), n, "importance-aware steps; given alone, only this part of the default")
    yield Flag(("--ftrl",), n, "FTRL-Proximal")
    yield Flag(("--pistol",), n, "PiSTOL")
    yield Flag(("--coin",), n, "coin betting")
    yield Flag(("--ftrl_alpha",), x, "alpha: 0.5 for `--ftrl`, 1 for `--pistol`, 4 for `--coin`")
    yield Flag(("--ftrl_beta",), x, "beta: 1, 0.5 for `--pistol`")
    yield Flag(("--learning_rate", "-l"), x, "0.5 where adaptive and normalized, else 10")
    yield Flag(("--power_t",), x, "exponent of the learning rate, 0.5")
    yield Flag(("--initial_t",), x, "1 with neither adaptive nor normalized, else 0")
    yield Flag(("--decay_learning_rate",), x, "factor of the learning rate after each pass, 1")
    yield Flag(("--l1",), x, "L1 penalty, 0; nothing to `--pistol` and `--coin`")
    yield Flag(("--l2",), x, "L2 penalty, 0; nothing to `--pistol` and `--coin`")
    yield Flag(("--loss_function",), w, "squared, logistic, hinge, quantile or poisson")
    yield Flag(("--quantile_tau",), x, "tau of quantile loss, 0.5")
    yield Flag(("--bit_precision", "-b"), i, "bits of a feature's index, 18, at most 30")
    yield Flag(("--quadratic", "-q"), w, "two first letters of namespaces to combine; `:` for any", many=True)
    yield Flag(("--cubic",), w, "three letters", many=True)
    yield Flag(("--interactions",), w, "two or three letters", many=True)
    yield Flag(("--ngram",), i, "n-grams of every namespace")
    yield Flag(("--skips",), i, "words that an n-gram may leave out")
    yield Flag(("--ignore",), w, "first letters of namespaces to leave out", many=True)
    yield Flag(("--keep",), w, "first letters of namespaces to keep alone", many=True)
    yield Flag(("--noconstant",), n, "no constant feature")
    yield Flag(("--hash",), w, "strings, or all: names that are numbers are hashed too")
    yield Flag(("--passes",), i, "passes over the data; with more than one, every tenth example is held out")
    yield Flag(("--holdout_off",), n, "hold nothing out")
    yield Flag(("--holdout_period",), i, "hold every so many-th example out, 10")
    yield Flag(("--early_terminate",), i, "passes without a better one before it stops, 3")
    yield Flag(("--testonly", "-t"), n, "predict only")
    for names in (("--cache", "-c"), ("--kill_cache", "-k"), ("--compressed",), ("--quiet",), ("--no_stdin",)):
        yield Flag(names, n, "accepted; not needed", used=False)
    yield Flag(("--cache_file",), w, "accepted; not needed", many=True, used=False)
    yield Flag(("--progress", "-P"), w, "accepted; `evaluate` shows progress itself", used=False)
    yield Flag(("--random_seed",), i, "accepted; nothing is random", used=False)
    yield Flag(("--predictions", "-p"), w, "accepted; `evaluate --predictions` writes them", used=False)
    yield Flag(("--final_regressor", "-f"), w, "accepted; `evaluate --save` writes models", used=False)


FLAGS: Final = tuple(_flags())
"""All flags, in the order of the table."""
_BY_NAME: Final = {name: flag for flag in FLAGS for name in flag.names}


class GivenFlags:
    """The values that a command line gives for its flags. Raises ConfigError."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._texts: dict[str, list[str]] = {}
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise self.error(str(error)) from None
        self._read(iter(words[1:] if words[:1] == ["vw"] else words))

    def error(self, problem: str, action: str = "") -> ConfigError:
        """The error that refuses this command line."""
        return ConfigError(
            f'--vw "{self.command}": {problem}', action=action or "docs/vw-flags.md lists the flags of --vw."
        )

    def has(self, key: str) -> bool:
        """Whether a flag was given, by its long name."""
        return key in self._texts

    def all(self, key: str) -> tuple[str, ...]:
        """All texts given for a flag."""
        return tuple(self._texts.get(key, ()))

    def text(self, key: str, default: str) -> str:
        """The last text given for a flag."""
        return self._texts[key][-1] if key in self._texts else default

    def number(self, key: str, default: float) -> float:
        return float(self.text(key, "")) if self.has(key) else default

    def count(self, key: str, default: int) -> int:
        """The whole number that was given for a flag."""
        return int(self.text(key, "")) if self.has(key) else default

    def _read(self, words: Iterator[str]) -> None:
        for word in words:
            if not word.startswith("-") or word == "-":
                self._texts.setdefault("data", []).append(word)
                continue
            flag, name, attached = self._flag(word)
            if flag.takes is Takes.NOTHING:
                if attached is not None:
                    raise self.error(f"{name} takes no value")
                text: str | None = ""
            else:
                text = next(words, None) if attached is None else attached
            if text is None:
                raise self.error(f"{name} needs a {flag.takes.value}")
            self._take(flag, name, text)

    def _flag(self, word: str) -> tuple[Flag, str, str | None]:
        """The flag of a word, its name as written, and the value attached to it, None without one."""
        name, equals, value = word.partition("=")
        if name in _BY_NAME:
            return _BY_NAME[name], name, value if equals else None
        short = word[:2]
        if short in _BY_NAME and not word.startswith("--"):
            return _BY_NAME[short], short, word[2:]
        close = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.0)[0]
        raise self.error(f"{name} is not supported; the nearest supported flag is {close}")

    def _take(self, flag: Flag, name: str, text: str) -> None:
        kind = {Takes.NUMBER: float, Takes.COUNT: int}.get(flag.takes, str)
        try:
            kind(text)
        except ValueError:
            raise self.error(f"{name} takes a {flag.takes.value}, not {text!r}") from None
        before = self._texts.setdefault(flag.key, [])
        if before and not flag.many and before[-1] != text:
            raise self.error(f"{name} is given twice, as {before[-1]} and {text}")
        before.append(text)


def flag_table() -> str:
    """The flags as a table in Markdown."""
    rows = ["| flag | takes | meaning |", "| --- | --- | --- |"]
    for flag in FLAGS:
        names = ", ".join(f"`{name}`" for name in flag.names)
        rows.append(f"| {names} | {flag.takes.value} | {flag.meaning} |")
    return "\n".join(rows) + "\n"
