"""A target of fuzzing, and the table of all targets."""

from __future__ import annotations

import abc
import importlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

from proofs.fuzz.guard import Side

CORPUS = Path(__file__).parent / "corpus"
MIB = 1 << 20

TARGETS = {
    "impressions": "proofs.fuzz.targets.events:Impressions",
    "clicks": "proofs.fuzz.targets.events:Clicks",
    "avro-records": "proofs.fuzz.targets.avro:AvroRecords",
    "requests": "proofs.fuzz.targets.requests:Requests",
    "predictions": "proofs.fuzz.targets.predictions:Predictions",
    "log-records": "proofs.fuzz.targets.training_log:LogRecords",
    "rule-r": "proofs.fuzz.targets.rule_r:RuleRSequences",
    "snapshot-records": "proofs.fuzz.targets.snapshots:SnapshotRecords",
    "snapshot-sequences": "proofs.fuzz.targets.replica:SnapshotSequences",
    "scorer-copies": "proofs.fuzz.targets.scorer_copies:ScorerCopies",
    "checkpoints": "proofs.fuzz.targets.checkpoints:Checkpoints",
    "checkpoint-copies": "proofs.fuzz.targets.checkpoints:CheckpointCopies",
    "control": "proofs.fuzz.targets.control:ControlRecords",
    "libsvm-text": "proofs.fuzz.targets.text:LibsvmLines",
    "csv-text": "proofs.fuzz.targets.text:CsvLines",
    "json-lines": "proofs.fuzz.targets.text:JsonLinesText",
    "vw-text": "proofs.fuzz.targets.text:VwLines",
    "model-files": "proofs.fuzz.targets.models:ModelFiles",
    "configuration": "proofs.fuzz.targets.configuration:Configuration",
}
"""The class of each target, by its name on the command line."""


class Wrong(Exception):
    """An input was read wrongly."""


class Target(abc.ABC):
    """Makes inputs and checks what reads them.

    name: the folder of its corpus. batch_inputs: how many inputs are checked together. limit_bytes: the memory that a
    batch may need beyond what the process has.
    """

    name = ""
    batch_inputs = 64
    limit_bytes = 256 * MIB

    def __init__(self, corpus: Sequence[bytes]) -> None:
        self.corpus = list(corpus)

    @abc.abstractmethod
    def make(self, rng: Random) -> bytes:
        """Make one input. It depends on the state of the generator only."""

    @abc.abstractmethod
    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        """Read the inputs, in memory that is guarded at one side. Returns how many were accepted.

        Raises Wrong if one was read wrongly. Any other exception is a finding too.
        """


def corpus_of(name: str) -> dict[str, bytes]:
    """The seed inputs of a target by the names of their files."""
    folder = CORPUS / name
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())} if folder.is_dir() else {}


def load(path: str) -> Target:
    """The target at `module:Class`, with its corpus."""
    module, _, attribute = path.partition(":")
    kind: type[Target] = getattr(importlib.import_module(module), attribute)
    return kind(list(corpus_of(kind.name).values()))


def pack(parts: Sequence[bytes]) -> bytes:
    """Several pieces of bytes as one input."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpack(data: bytes) -> list[bytes]:
    """The pieces of an input; a piece that is cut off counts as far as it is there."""
    parts, at = [], 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return parts
