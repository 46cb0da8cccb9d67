"""Models as files: saved after an evaluation, loaded to go on or to predict, to the same bits.

A file has a checksum, and its arrays are of numbers only: nothing is unpickled.

    offset  type     field
         0  u8[8]    "SLMODEL\\n"
         8  u32      version, 1
        12  u32      j, length of the next field
        16  u8[j]    JSON: {"kind", "arrays": [[name, dtype, shape], …], …}, blanks at its end up to a multiple of 8
            u8[]     the arrays in that order, little-endian, each followed by zeros up to a multiple of 8
            u8[32]   SHA-256 of all before

For a learner (kind "learner") the arrays are keys u64[r], columns f64[r, c] and touched i64[r]. The JSON has its
`loss`, its `state` (`Learner.state_scalars` with the digest of the model) and the `key_rule` of its features; a file
without a `key_rule` has rule 1, as all files had before there was another.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.feature_keys import FIRST_RULE, KEY_RULES
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import make_loss
from stream_learner.core.model.optimizers import make_optimizer
from stream_learner.core.model.table.rows import StateRows, joined
from stream_learner.errors import BadInput, NewerFormat

MAGIC: Final = b"SLMODEL\n"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sII")
_CHECKSUM_BYTES: Final = 32
_NUMBERS = re.compile("<[uif][248]|[|][uib]1")
"""The types of arrays, as NumPy writes them. Other types of NumPy may hold Python objects."""
_ACTION: Final = "Give a file that evaluate --save has written, undamaged; or leave --load out."


def save_learner(learner: Learner, file: Path, key_rule: int = FIRST_RULE) -> None:
    """Write a learner's state and the rule of its keys. The file appears whole or not at all."""
    rows = joined(learner.table.items())
    arrays = {"keys": rows.keys, "columns": rows.columns, "touched": rows.touched}
    about: dict[str, Any] = {"kind": "learner", "loss": learner.loss.to_dict(), "state": learner.state_scalars()}
    if key_rule != FIRST_RULE:
        about["key_rule"] = key_rule
    write_model(file, about, arrays)


def write_model(file: Path, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of this format, under a temporary name until it is whole."""
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**about, "arrays": shapes}).encode()
    text += b" " * (-len(text) % 8)
    unfinished = file.with_name(f".{file.name}.unfinished")
    checksum = hashlib.sha256()
    try:
        with unfinished.open("wb") as stream:
            for part in (_HEAD.pack(MAGIC, VERSION, len(text)), text, *map(_padded, arrays.values())):
                checksum.update(part)
                stream.write(part)
            stream.write(checksum.digest())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def read_model(file: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_model` wrote; the arrays are read-only. Raises BadInput, NewerFormat."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror or error}", action=_ACTION) from None
    if not content.startswith(MAGIC) or len(content) < _HEAD.size + _CHECKSUM_BYTES:
        raise BadInput(f"{file} is no model of stream-learner", action=_ACTION)
    _, version, length = _HEAD.unpack_from(content)
    body = memoryview(content)[:-_CHECKSUM_BYTES]
    if hashlib.sha256(body).digest() != content[-_CHECKSUM_BYTES:]:
        raise BadInput(f"{file} is damaged: its checksum is wrong", action=_ACTION)
    if version != VERSION:
        raise NewerFormat(f"{file} has version {version} of its format; this program knows {VERSION}")
    try:
        return _contents(content, _HEAD.size + length)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{file} contradicts itself: {error}", action=_ACTION) from None


def _contents(content: bytes, at: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The JSON and the arrays of a file whose checksum is right; the arrays begin at `at`."""
    about = json.loads(content[_HEAD.size : at])
    arrays, end = {}, len(content) - _CHECKSUM_BYTES
    for name, dtype, shape in about.pop("arrays"):
        if not _NUMBERS.fullmatch(dtype):
            raise ValueError(f"the array {name!r} is of type {dtype!r}")
        kind, count = np.dtype(dtype), math.prod(shape)
        if name in arrays or at + count * kind.itemsize > end or any(length < 0 for length in shape):
            raise ValueError(f"the array {name!r} of shape {shape} is there twice, or not at all")
        arrays[name] = np.frombuffer(content, kind, count, at).reshape(shape)
        at += count * kind.itemsize
        at += -at % 8
    return about, arrays


def _padded(array: NDArray[Any]) -> bytes:
    content = array.tobytes()
    return content + bytes(-len(content) % 8)


def load_learner(file: Path, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Learner:
    """The learner of a file. Raises BadInput for another kind of file, and if its rows do not have its digest."""
    if about.get("kind") != "learner":
        raise BadInput(f"{file} is no model of a learner, but of kind {about.get('kind')!r}", action=_ACTION)
    try:
        state = about["state"]
        learner = Learner(make_optimizer(state["optimizer"]), loss=make_loss(**about["loss"]))
        learner.table.expect(len(arrays["keys"]))
        learner.table.load(StateRows(arrays["keys"], arrays["columns"], arrays["touched"]))
        learner.restore(state)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"{file}: {error}", action=_ACTION) from None
    return learner


def key_rule_of(file: Path, about: Mapping[str, Any]) -> int:
    """The rule of a learner's keys, from its file. Raises NewerFormat for an unknown rule."""
    rule = about.get("key_rule", FIRST_RULE)
    if type(rule) is not int or rule not in KEY_RULES:
        raise NewerFormat(f"{file} has key rule {rule!r}; this program knows {', '.join(map(str, KEY_RULES))}")
    return rule
