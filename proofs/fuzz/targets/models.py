"""Model files: an accepted file must agree with the documented layout, and loading it must be harmless.

Most damaged files get a right checksum, so that they are not all refused there.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import json_bytes_mutated, mutated, number_set
from proofs.fuzz.target import Target, Wrong
from stream_learner.errors import BadInput, NewerFormat
from stream_learner.evaluate.model_file import key_rule_of, load_learner, read_model

_HEAD_BYTES = 16
_CHECKSUM_BYTES = 32
_LOADED_BYTES = 4_096
"""The largest file that is also loaded: a learner's tables cost more than its file."""


class ModelFiles(Target):
    """`.slm` files of learners."""

    name = "model-files"
    batch_inputs = 100

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-models-")
        self._file = Path(self._folder.name) / "model.slm"

    def make(self, rng: Random) -> bytes:
        whole = rng.choice(self.corpus)
        content, kind = whole[:-_CHECKSUM_BYTES], rng.random()
        if kind < 0.3:
            content = mutated(rng, content, self.corpus)
        elif kind < 0.5:
            content = number_set(rng, content)
        else:
            size = int.from_bytes(content[12:16], "little")
            text = json_bytes_mutated(rng, content[_HEAD_BYTES : _HEAD_BYTES + size].rstrip())
            text += b" " * (-len(text) % 8)
            content = content[:12] + len(text).to_bytes(4, "little") + text + content[_HEAD_BYTES + size :]
        checksum = hashlib.sha256(content).digest() if rng.random() < 0.95 else whole[-_CHECKSUM_BYTES:]
        return content + checksum

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(content) for content in inputs)

    def _check(self, content: bytes) -> bool:
        self._file.write_bytes(content)
        try:
            about, arrays = read_model(self._file)
        except (BadInput, NewerFormat):
            return False
        if content[:8] != b"SLMODEL\n" or int.from_bytes(content[8:12], "little") != 1:
            raise Wrong("a file of another kind was read")
        if hashlib.sha256(content[:-_CHECKSUM_BYTES]).digest() != content[-_CHECKSUM_BYTES:]:
            raise Wrong("a file with another checksum was read")
        at = _HEAD_BYTES + int.from_bytes(content[12:16], "little")
        said = json.loads(content[_HEAD_BYTES:at])["arrays"]
        for (name, _, shape), array in zip(said, arrays.values(), strict=len(said) == len(arrays)):
            if array.tobytes() != content[at : at + array.nbytes] or at + array.nbytes > len(content) - _CHECKSUM_BYTES:
                raise Wrong(f"the array {name!r} lies elsewhere")
            if list(array.shape) != list(shape):
                raise Wrong(f"the array {name!r} has shape {array.shape}")
            at += array.nbytes + -array.nbytes % 8
        if len(content) > _LOADED_BYTES or about.get("kind") != "learner":
            return True
        try:
            key_rule_of(self._file, about)
            learner = load_learner(self._file, about, arrays)
        except (BadInput, NewerFormat):
            return True
        if f"{learner.digest():016x}" not in json.dumps(about) and str(learner.digest()) not in json.dumps(about):
            raise Wrong("a learner was loaded whose digest is not the one in its file")
        return True
