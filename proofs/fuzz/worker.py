"""The child process: makes inputs, batch by batch, and checks them. Any input may kill it; its parent notices.

It writes its position into a shared file, and findings as lines of JSON. Batch -1 is the corpus. The content of batch b
depends on the target, the seed and b only.
"""

from __future__ import annotations

import argparse
import json
import mmap
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from proofs.fuzz.guard import SIDES, Side
from proofs.fuzz.target import Target, load, pack, unpack

BATCH_MAGIC = b"inputs that fail together\n"
BATCH, INDEX, DONE, ACCEPTED, FOUND = range(5)
WORDS = 5
MOST_FINDINGS = 5


class Position:
    """Numbers in a file that the parent can read while this process runs, or after it was killed."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as stream:
            self._map = mmap.mmap(stream.fileno(), 8 * WORDS)
        self._words = np.frombuffer(self._map, np.int64)

    def __getitem__(self, word: int) -> int:
        return int(self._words[word])

    def __setitem__(self, word: int, value: int) -> None:
        self._words[word] = value

    @staticmethod
    def create(file: Path) -> Position:
        """A file of zeros."""
        file.write_bytes(bytes(8 * WORDS))
        return Position(file)


def inputs_of(target: Target, seed: int, batch: int) -> list[bytes]:
    """The inputs of a batch."""
    if batch < 0:
        return target.corpus
    rng = Random(f"{target.name}/{seed}/{batch}")
    return [target.make(rng) for _ in range(target.batch_inputs)]


def inputs_in(content: bytes) -> list[bytes]:
    """The inputs in a saved file: one, or all of a batch that fails only together."""
    return unpack(content[len(BATCH_MAGIC) :]) if content.startswith(BATCH_MAGIC) else [content]


def trouble_with(target: Target, inputs: Sequence[bytes], side: Side) -> str:
    """Check the inputs. Returns what is wrong, "" if nothing is."""
    try:
        target.check(inputs, side)
    except Exception as error:  # noqa: BLE001 - an exception that is not documented is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:1000]} ({Path(place.filename).name}:{place.lineno})"
    return ""


class Worker:
    """The work of one child."""

    def __init__(self, target: Target, seed: int, folder: Path) -> None:
        self._target, self._seed, self._folder = target, seed, folder
        self._position = Position(folder / "position")

    def run(self, first: int, last: int) -> None:
        """Check the batches from `first` to before `last`; the corpus comes before, and is not limited in memory."""
        if first <= 0:
            self._batch(-1)
            first = 0
        else:
            self._target.check(self._target.corpus, "end")
        _limit_memory(self._target.limit_bytes)
        for batch in range(first, last):
            self._position[BATCH] = batch
            self._batch(batch)
            if self._position[FOUND] >= MOST_FINDINGS:
                return

    def one_by_one(self, batch: int) -> None:
        """Check each input of a batch alone, noting it before; then all together."""
        inputs = inputs_of(self._target, self._seed, batch)
        for i, data in enumerate(inputs):
            self._position[INDEX] = i
            (self._folder / "current").write_bytes(data)
            for side in SIDES:
                self._target.check([data], side)
        self._position[INDEX] = len(inputs)
        (self._folder / "current").write_bytes(BATCH_MAGIC + pack(inputs))
        for side in SIDES:
            self._target.check(inputs, side)

    def _batch(self, batch: int) -> None:
        inputs = inputs_of(self._target, self._seed, batch)
        side = SIDES[batch % 2]
        try:
            self._position[ACCEPTED] = self._position[ACCEPTED] + self._target.check(inputs, side)
        except Exception:  # noqa: BLE001 - the same, and now it is looked for one by one
            self._narrow(inputs, batch, side)
        if batch >= 0:
            self._position[DONE] = self._position[DONE] + len(inputs)

    def _narrow(self, inputs: Sequence[bytes], batch: int, side: Side) -> None:
        """Note each input that fails alone, or the whole batch if none does."""
        found = [(data, trouble) for data in inputs if (trouble := trouble_with(self._target, [data], side))]
        whole = BATCH_MAGIC + pack(inputs)
        for data, trouble in found[:MOST_FINDINGS] or [(whole, trouble_with(self._target, inputs, side))]:
            self._position[FOUND] = self._position[FOUND] + 1
            file = self._folder / f"wrong-{batch}-{self._position[FOUND]}"
            file.write_bytes(data)
            line = {"batch": batch, "file": str(file), "what": trouble or "once, and not again"}
            with (self._folder / "findings").open("a") as stream:
                stream.write(json.dumps(line) + "\n")


def _limit_memory(beyond_bytes: int) -> None:
    """Let allocations fail that exceed the memory mapped now by this much."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + beyond_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    """Do the work that the parent asked for."""
    parser = argparse.ArgumentParser(prog="proofs.fuzz.worker")
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=0)
    parser.add_argument("--one-by-one", action="store_true")
    parser.add_argument("--input", type=Path)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    target = load(arguments.target)
    if arguments.input is not None:
        inputs = inputs_in(arguments.input.read_bytes())
        found = [trouble for side in SIDES if (trouble := trouble_with(target, inputs, side))]
        (arguments.folder / "answer").write_text(found[0] if found else "")
        return 0
    worker = Worker(target, arguments.seed, arguments.folder)
    if arguments.one_by_one:
        worker.one_by_one(arguments.first)
    else:
        worker.run(arguments.first, arguments.last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
