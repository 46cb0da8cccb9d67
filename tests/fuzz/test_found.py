"""What fuzzing has found, each in the smallest form that shows it."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import WriteBatch

from proofs.fuzz.publications import Pair, histories
from proofs.fuzz.targets.checkpoints import opened, written_checkpoints
from proofs.fuzz.targets.replica import Item, Reading, values_of
from proofs.fuzz.targets.snapshots import sealed_anew
from stream_learner.config.load import load_config
from stream_learner.core.errors import DamagedRecord
from stream_learner.core.events.decoders import EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.log.examples import decode, encode_examples, to_batch
from stream_learner.core.model.losses import LOGISTIC
from stream_learner.core.model.progress import Progress
from stream_learner.core.snapshots.checkpoint_copy import decode_copy
from stream_learner.core.snapshots.pages import PageState, Prefix
from stream_learner.core.snapshots.records import (
    MAX_DELTA_RECORDS,
    MAX_SEQUENCE,
    MODEL_KEY,
    VERSION_KEY,
    Stamp,
    encode_head,
    encode_model,
    encode_version,
    stamp_of,
)
from stream_learner.core.snapshots.records import decode as decode_snapshot
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.table import ReplicaTable
from stream_learner.errors import BadInput, StateDamaged
from stream_learner.evaluate.formats.vw.parser import VwText, VwTextOptions
from stream_learner.evaluate.model_file import load_learner, read_model

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
MODEL = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": [], "metrics": {}}


def impression_values(raw: bytes) -> list[float]:
    """The values of an event that the kernel knows the fields of; its number is the field n."""
    decoder = ImpressionDecoder(EventSpec(), FeatureSpec(fields={"n": FieldSpec("number")}, bias=False))
    bounds = np.array([0, len(raw), 2 * len(raw)])
    got = decoder.decode(raw * 2, bounds, np.zeros(2, np.int64))
    assert got.status.tolist() == [0, 0]
    plain, fast = np.split(got.values, 2)
    assert plain.tolist() == fast.tolist()
    return plain.tolist()


@pytest.mark.parametrize("whole", ["1" + "0" * 64, "18446744073709551616", "36893488147419103232"])
def test_a_whole_part_that_is_0_modulo_2_to_the_64_is_not_taken_for_0(whole: str) -> None:
    """In JSON with a fraction behind it, and in VW text with or without: once 1e64 was read as 0."""
    assert impression_values(b'{"id":"x","n":%b.5}' % whole.encode()) == [float(whole)]
    batch = VwText().parse(f"1 |a b:{whole} c:{whole}.5\n".encode(), 1).batch
    assert batch.values[:2].tolist() == [float(whole), float(whole)]


def test_blanks_behind_an_event_take_time_in_proportion_to_their_number() -> None:
    """They were gone over once for each of them: 1 MiB took minutes, and these would take an hour."""
    raw = b'{"id":"x"}' + b" " * (1 << 22)
    decoder = ImpressionDecoder(EventSpec(max_event_bytes=1 << 23), FeatureSpec())
    assert decoder.decode(raw, np.array([0, len(raw)]), np.zeros(1, np.int64)).status.tolist() == [0]


def test_a_new_namespace_beside_a_number_beyond_64_bits_gets_its_interactions() -> None:
    """The number was decided first, and when the line was read again its letters passed for known: with `::` their
    interactions were left out of that line and of every later one."""
    block = b"1 |a x:1111111111111111111111111.5 y\n1 |a x:2 y\n"
    parser = VwText(VwTextOptions(quadratic=("::",), repeats=True))
    assert [np.diff(parser.parse(block, 1).batch.row_start).tolist() for _ in range(2)] == [[6, 6], [6, 6]]


FRESH = """
from stream_learner.evaluate.formats.json_lines import JsonLines
parsed = JsonLines(label="y").parse(b'{"y":"yes"}\\n{"y":1}\\n', 1)
print([fault.line for fault in parsed.faults], parsed.batch.label.tolist())
"""


def test_the_first_field_that_a_process_knows_is_found_again() -> None:
    """Its key was hashed in memory that was free by then, and loading the kernel wrote over it: a field that a
    configuration names was passed over, so that no line had a label. Only a fresh process shows it."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1] [1.0]"


def test_examples_whose_log_time_goes_beyond_64_bits_are_damaged() -> None:
    """It would have gone back, to far before the first; and at the edge itself they can be encoded again."""
    value = (GOLDEN / "training_log_v1" / "examples.bin").read_bytes()
    for first_ms, fits in ((2**63 - 778, True), (2**63 - 777, False)):
        body = value[40:56] + struct.pack("<q", first_ms) + value[64:]
        record = value[:36] + struct.pack("<I", zlib.crc32(body)) + body
        if not fits:
            with pytest.raises(DamagedRecord, match="log times beyond 64 bits"):
                decode(record)
            continue
        batch = to_batch(decode(record))  # type: ignore[arg-type]
        assert batch.log_time_ms.tolist() == [first_ms, first_ms, first_ms + 777]
        assert len(encode_examples(0, 0, 1, batch)) == 1


def test_a_page_whose_prefix_has_bits_beyond_its_length_is_damaged() -> None:
    """The last page of a version record begins at three quarters, and claims one bit; only its end fits."""
    state = PageState(1, ((Prefix(0, 1), 1), (Prefix(1 << 63, 2), 1), (Prefix(3 << 62, 2), 1)), np.zeros(4, np.int64))
    value = encode_version(Stamp(0, 1, 1, 1, 1), 0, 0, state)
    assert decode_snapshot(b"version", value)
    with pytest.raises(DamagedRecord, match="do not cover the shard"):
        decode_snapshot(b"version", sealed_anew(value[:-1] + b"\x01"))


def test_a_version_record_that_claims_more_delta_records_than_there_can_be_is_damaged() -> None:
    """Its checksum is right. A learner, or a restoration, would have made a list of 2^32 keys and run out of memory."""
    state = PageState(1, ((Prefix(0, 0), 1),), np.array([0, 1 << 20, 0, 0]))
    value = encode_version(Stamp(0, 1, 1, 1, 1), 0, 0, state)
    assert decode_snapshot(b"version", value).state.slot_parts.sum() == MAX_DELTA_RECORDS  # type: ignore[union-attr]
    slots = 64 + 16
    for claimed in ((1 << 20) + 1, 2**32 - 1):
        with pytest.raises(DamagedRecord, match=f"{claimed:,} delta records in a ring, more than 1,048,576"):
            decode_snapshot(
                b"version", sealed_anew(value[: slots + 4] + struct.pack("<I", claimed) + value[slots + 8 :])
            )
        with pytest.raises(ValueError, match="delta records in a ring"):
            encode_version(Stamp(0, 1, 1, 1, 1), 0, 0, replace(state, slot_parts=np.array([0, claimed, 0, 0])))


def test_a_record_of_a_publication_that_no_publisher_reaches_is_damaged() -> None:
    """With all records of a checkpoint numbered alike, an OverflowError came out where it was opened."""
    for sequence in (2**62 - 1, 2**62, 2**64 - 1):
        value = encode_head(Stamp(0, 1, sequence, 1, 1), {})
        if sequence == MAX_SEQUENCE:
            assert stamp_of(value).sequence == sequence
            continue
        with pytest.raises(DamagedRecord, match=f"of publication {sequence}, more than there can be"):
            decode_snapshot(b"head", value)


@pytest.mark.parametrize("loss", [None, "logistic", [], {"name": ["logistic"]}, {"name": None}])
def test_a_model_record_whose_loss_is_no_object_is_damaged(loss: Any) -> None:
    """A scorer says so, is not ready, and goes on."""
    replica = Replica([1])
    value = encode_model(Stamp(0, 1, 1, 1, 1), 0, {**MODEL, "loss": loss})
    with pytest.raises(DamagedRecord, match="a model whose loss is"):
        replica.take(0, 0, b"model", value)
    assert not replica.ready


def is_version(pair: Pair) -> bool:
    """Whether a record is one of those that make its publication count."""
    return pair[0] in (VERSION_KEY, MODEL_KEY)


@pytest.mark.parametrize("place", [0, 2])
def test_a_version_record_behind_later_publications_is_not_served_while_loading(place: int) -> None:
    """What they have changed was written already: the replica served the old version with some of their weights."""
    history = histories()[place]
    whole = [each.records for each in history.publications]
    for late in range(1, len(whole) - 2):
        for shard in range(history.shards):
            read = [
                [pair for records in whole[: late if each == shard else late + 1] for pair in records[each]]
                for each in range(history.shards)
            ]
            own, following, then = (whole[late + more][shard] for more in range(3))
            read[shard] += [pair for pair in own + following if not is_version(pair)]
            read[shard] += [next(pair for pair in then if pair[0].startswith(b"delta/")), *filter(is_version, own)]
            ends = [len(read[0]), len(read[-1])]
            reading = Reading(history, values_of(history), ends, ReplicaTable(lambda: None))
            for each, pairs in enumerate(read):
                for pair in pairs:
                    reading.take(Item(each, *pair))


@pytest.mark.parametrize("said", [{"lineage": 5}, {"identity": []}, {"versions": {}}, {"versions": ""}])
def test_a_copy_that_says_something_of_another_type_is_damaged(said: dict[str, Any]) -> None:
    """Versions that are an object were taken for none, a number for the name of a lineage."""
    content = {"copy_format": 1, "lineage": "00ff", "identity": {"model": "m"}, "head": "", "versions": []}
    stamp = Stamp(0, 1, 1, 1, 1)
    assert decode_copy(encode_head(stamp, content)).versions == ()
    with pytest.raises(DamagedRecord, match="contradicts itself"):
        decode_copy(encode_head(stamp, {**content, **said}))


@pytest.mark.parametrize("content", [{}, {"head": 1}, {"head": []}, {"tail": {}}])
def test_a_checkpoint_whose_head_says_nothing_is_damaged(content: dict[str, Any], tmp_path: Path) -> None:
    """Its checksum is right: a KeyError came out."""
    with opened(tmp_path) as store:
        store.parts.db.put(b"head", encode_head(Stamp(0, 2, 1, 0, 1), content))
    with pytest.raises(StateDamaged, match="says nothing that can be used"):
        opened(tmp_path)


def test_a_page_in_the_place_of_another_is_damaged(tmp_path: Path) -> None:
    """Of the same shard and checkpoint; only the digest would have told, and not which piece it was."""
    entries = written_checkpoints([4], most=160)[0]
    pages = [entry for entry in entries if entry[1][:1] == b"p" and entry[1][9:10] == b"p"]
    family, key, other = next(
        (a[0], a[1], b[2]) for a in pages for b in pages if (a[0], a[1][:9]) == (b[0], b[1][:9]) and a[1] != b[1]
    )
    with opened(tmp_path) as store:
        for place, name, value in [*entries, (family, key, other)]:
            store.parts.db.write(batch_of(store.parts.handles[place - 1] if place else None, name, value))
    with opened(tmp_path) as store, pytest.raises(StateDamaged, match="holds rows of another place"):
        list(store.load().rows)  # type: ignore[union-attr]


def batch_of(family: Any, key: bytes, value: bytes) -> WriteBatch:
    """A batch of one."""
    batch = WriteBatch(raw_mode=True)
    batch.put(key, value, family)
    return batch


def test_an_optimizer_named_null_is_the_default_with_its_settings() -> None:
    """It had the name alone, and showed as a configuration that is another once it is written down."""
    base = ["model=m", "kafka.bootstrap.servers=b", "input.impressions.topic=i", "input.clicks.topic=c"]
    config = load_config(None, overrides=[*base, "learner.optimizer.name=null"])
    assert config.written() == load_config(None, overrides=base).written()


def model_file(folder: Path, about: bytes, arrays: bytes = b"") -> Path:
    """A file with the right magic, version and checksum, whatever it says."""
    content = b"SLMODEL\n" + struct.pack("<II", 1, len(about)) + about + arrays
    file = folder / "model.slm"
    file.write_bytes(content + hashlib.sha256(content).digest())
    return file


@pytest.mark.parametrize(
    "about",
    [
        b"",
        b"[]",
        b"{}",
        b'{"arrays":[["keys","O",[1]]]}',
        b'{"arrays":[["keys","<u8",[4]]]}',
        b'{"arrays":[["keys","<u8",[-1]]]}',
        b'{"arrays":[["keys","<u8",[0]],["keys","<u8",[0]]]}',
        b'{"arrays":[["keys","nonsense",[0]]]}',
        b'{"arrays":[["keys","<u8,(",[0]]]}',
    ],
)
def test_a_model_file_that_contradicts_itself_is_refused_by_name(about: bytes, tmp_path: Path) -> None:
    """Its checksum is right; what it says is not. An array may not reach into the checksum either."""
    with pytest.raises(BadInput, match=r"model\.slm"):
        read_model(model_file(tmp_path, about))


def test_a_model_file_without_a_state_is_refused_by_name(tmp_path: Path) -> None:
    """Nor with one of another kind."""
    for about in ({"arrays": []}, {"arrays": [], "state": 5, "loss": {"name": "logistic"}}):
        file = model_file(tmp_path, json.dumps(about).encode())
        with pytest.raises(BadInput, match=r"model\.slm"):
            load_learner(file, *read_model(file))


def test_metrics_that_cannot_be_unpacked_are_a_value_error() -> None:
    """Metrics that would unpack to far more than there can be raise it too."""
    progress = Progress(LOGISTIC)
    state = progress.state()
    progress.restore(state)
    far_more = zlib.compress(bytes(1 << 28))
    for packed in (b"x", far_more[:100], far_more):
        with pytest.raises(ValueError, match="sums that"):
            progress.restore({**state, "blocks": base64.b64encode(packed).decode()})
