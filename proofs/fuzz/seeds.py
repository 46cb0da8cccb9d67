"""Writes the seed corpus with this project's own encoders: `python -m proofs.fuzz.seeds`.

Files that a finding left there, `found-…`, are kept.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from proofs.fuzz.target import CORPUS, pack

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"

EVENTS = {
    "plain": b'{"id":"x","site":"news","a":"b","n":1.5}',
    "times": b'{"id":18446744073709551615,"t":"2026-01-01T00:00:00.123Z","w":0.5,"v":1,"a":7}',
    "millis": b'{"id":"y","t":1700000000000,"user":{"id":"u","kind":"x","secret":1,"t":170000000000000,"w":2,"v":0}}',
    "nested": b'{"id":"z","f":[1,"a",true,{"x":[3,null]}],"d":{"e":{"t":1700000000000,"v":0.25,"w":3}},"a":"q"}',
    "kinds": b'{"a":"id-1","b":-2,"c":true,"log":-1e3,"bucket":10,"e":"no","n":12345678901234567890,"cat":1}',
    "escapes": b'{"id":"\\u00e9\\ud83d\\ude00","a":"\\"\\\\\\n","\\u0061":1,"d.e":2,"":"empty"}',
    "numbers": b'{"id":1,"a":0.1,"b":1e22,"c":123456789.123456789,"n":5e-324,"x":-0,"f":1.7976931348623157e308}',
    "utf8": '{"id":"日本語","é":"é","a":"😀 text"}'.encode(),
    "spaces": b' { "id" : "x" , "t" : 1 , "a" : [ 1 , 2 ] } \n',
    "empty": b"{}",
}


def events() -> dict[str, bytes]:
    """Impressions and clicks, each behind the bytes that choose the specification and the record's time."""
    return {name: bytes((place, 0)) + raw for place, (name, raw) in enumerate(EVENTS.items())}


def predictions() -> dict[str, bytes]:
    """Events behind the byte that chooses the features."""
    return {name: bytes((place,)) + raw for place, (name, raw) in enumerate(EVENTS.items())}


def requests() -> dict[str, bytes]:
    """Bodies of requests behind the byte that chooses the features."""
    bodies = {
        "one": b'{"instances":[{"id":"x","a":1}]}',
        "several": b'{ "signature_name": "s", "instances": [ {"a":[1,2]} , {"b":"]"}, {} ], "c": {"instances": [1]} }',
        "texts": b'{"instances":["{\\"a\\":1}", {"a":"\\u00e9"}]}',
        "none": b'{"instances":[]}',
        "escaped-key": b'{"inst\\u0061nces":[{}]}',
        "twice": b'{"instances":[{}],"instances":[{"a":1}]}',
    }
    return {name: bytes((place,)) + body for place, (name, body) in enumerate(bodies.items())}


def avro_records() -> dict[str, bytes]:
    """Records of each schema behind the byte that chooses it."""
    import fastavro

    from proofs.fuzz.targets.avro import SCHEMAS
    from tests.core.events.decode_help import without_logical

    element = {"x": 1 / 3, "y": True, "z": "RED", "c": "BLUE"}
    moment, u, f = 1_700_000_000_123, bytes(range(16)), b"\0\xff\0\xff\0"
    records: dict[str, tuple[int, dict[str, Any]]] = {
        "flat": (0, {"id": "x", "t": moment * 1000, "w": 0.5, "a": "größe", "b": -(2**63), "c": "RED"}),
        "nulls": (0, {"id": '"\\\n', "t": None, "w": None, "a": None, "b": 0, "c": "NONE"}),
        "nested": (1, {"id": 7, "t": moment, "w": 0.7, "l": [None, element], "m": {"a": [1, 2], "b": []}}),
        "empty": (1, {"id": "", "t": moment, "w": 0.0, "l": [], "m": {}}),
        "logical": (
            2,
            {"id": "y", "t": moment, "w": b"\1\xf4", "d": 20_000, "u": u, "f": f, "n": -1, "e": {"k": f}, "s": 1e10},
        ),
    }
    found = {}
    for name, (number, record) in records.items():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical(SCHEMAS[number])), record)
        found[name] = bytes((number,)) + out.getvalue()
    return found


def log_records() -> dict[str, bytes]:
    """A record of every kind and version, from the golden files of the format."""
    first = {file.stem: file.read_bytes() for file in sorted((GOLDEN / "training_log_v1").glob("*.bin"))}
    marks = {f"{file.stem}_v2": file.read_bytes() for file in sorted((GOLDEN / "training_log_v2").glob("*.bin"))}
    skips = {f"{file.stem}_v3": file.read_bytes() for file in sorted((GOLDEN / "training_log_v3").glob("*.bin"))}
    counted = {f"{file.stem}_v4": file.read_bytes() for file in sorted((GOLDEN / "training_log_v4").glob("*.bin"))}
    return first | marks | skips | counted


def rule_r() -> dict[str, bytes]:
    """Chains of marks with their records, one after another."""
    from proofs.fuzz.targets.rule_r import chains

    every = chains()
    chosen = {"one-writer": every[0], "the-second-goes-on": every[-1], "two-begin": every[0][:2] + every[1]}
    return {name: pack([value for tick in chain for value in tick]) for name, chain in chosen.items()}


SNAPSHOT_KEYS = {
    "model": b"model", "version": b"version", "delta": b"delta/1/0", "page": b"page/1", "checkpoint_head": b"head",
    "checkpoint_delta": b"delta/1/0", "checkpoint_page": b"page/1",
}  # fmt: skip


def snapshot_records() -> dict[str, bytes]:
    """Key and value of a record of every kind, from the golden files of the format."""
    folder = GOLDEN / "snapshots_v1"
    return {name: pack((key, (folder / f"{name}.bin").read_bytes())) for name, key in SNAPSHOT_KEYS.items()}


def scorer_copies() -> dict[str, bytes]:
    """The golden file of the format."""
    return {file.stem: file.read_bytes() for file in sorted((GOLDEN / "replica_copy_v1").glob("*.bin"))}


def checkpoints() -> dict[str, bytes]:
    """State directories after some checkpoints: family and key, then value, one after another."""
    from proofs.fuzz.targets.checkpoints import written_checkpoints

    ticks = (1, 5, 12)
    found = dict(zip([f"after-{tick}" for tick in ticks], written_checkpoints(ticks), strict=True))
    found["split"] = written_checkpoints([4], most=160)[0]
    return {
        name: pack([part for family, key, value in entries for part in (bytes((family,)) + key, value)])
        for name, entries in found.items()
    }


def checkpoint_copies() -> dict[str, bytes]:
    """The heads of copies of checkpoints."""
    from proofs.fuzz.targets.checkpoints import written_checkpoints, written_copy

    ticks = (1, 5, 12)
    return {f"after-{t}": written_copy(e) for t, e in zip(ticks, written_checkpoints(ticks), strict=True)}


def control_records() -> dict[str, bytes]:
    """Key and value of control records, from the golden files of the format."""
    found = {}
    for file in sorted((GOLDEN / "control_v1").glob("*.json")):
        value = orjson.loads(file.read_bytes())
        kind = next(kind for kind in ("alias", "publication", "pin") if file.stem.startswith(kind))
        name = value[{"alias": "alias", "publication": "model", "pin": "name"}[kind]]
        found[file.stem] = pack((f"{kind}/{name}".encode(), file.read_bytes()))
    return found


def libsvm_text() -> dict[str, bytes]:
    """Blocks of lines of LIBSVM text."""
    return {
        "plain": b"1 1:0.5 7:1 12:-3e2\n-1 2:1\n",
        "odd": b"# comment\n\n+1 qid:3 3:.5 3:5. # more\r\n5:1 6:0\n1 1:123456789012345678901234567890\n",
        "faults": b"x 1:2\n1 1:\n1 :3\n1 1:nan\n-1e999\n1 12345678901234567890:1\n",
    }


def csv_text() -> dict[str, bytes]:
    """Blocks of CSV lines of eight columns."""
    return {
        "plain": b"1,news,31,2,word,0.5,7,gone\n0,sport,-3,,w,99,8,gone\n",
        "quotes": b'true,"a,""b""",1,1,"x",,z,\n,,,,,,,\n',
        "faults": b'1,a\nyes,a,1,1,1,1,1,1\n1,"a,1,1,1,1,1,1\n1,1e999,1,1,1,1,1,1\n1,a,1,-1,1,1,1,1\n',
    }


def json_lines() -> dict[str, bytes]:
    """Blocks of objects with label and weight."""
    return {
        "plain": b'{"id":"x","y":1,"w":2,"a":"b"}\n{"y":false,"n":1.5}\r\n\n{"y":null,"f":[1,"a",{"b":2}]}\n',
        "faults": b'{"y":"yes"}\n[1]\n{"y":[1,0]}\n{"w":-1}\n{"a":}\n{"y":[1],"w":[2]}\n{}',
    }


def vw_text() -> dict[str, bytes]:
    """Blocks of lines behind the byte that chooses the second options they are read with."""
    return {
        "plain": b"\0001 2 'first|a x:0.5 y |b site=news:2\r\n\n-1 |ab:2 7 :3 :4 x x\n0 0.5 0 t| p\n",
        "crosses": b"\0011 |a x y z |b x:2 |a w:-1\n-1 |1 a |b c d\n",
        "letters": b"\0021 |a x y |aa z |b w |12 u:7\n|c v\n",
        "faults": b"\0031 a b\n1\t|a b\nnan |a b\n1 2 0.5 |a\n1 |:2 c\n1 |a b:1:2\n1 |a b\rc\n1 |a:1e300 b:1e300\n",
    }


def snapshot_sequences() -> dict[str, bytes]:
    """A few publications of small models as a reader gets them: whole, torn, of two shards, compacted."""
    from proofs.fuzz.targets.replica import seeds

    return seeds()


def model_files() -> dict[str, bytes]:
    """Learners with no row and with a few, of two optimizers."""
    from stream_learner.core.log.examples import ExampleBatch, decode, encode_examples
    from stream_learner.core.model.fold import Learner
    from stream_learner.core.model.losses import make_loss
    from stream_learner.core.model.optimizers import make_optimizer
    from stream_learner.evaluate.model_file import save_learner

    one = np.ones(1)
    rows = ExampleBatch(np.zeros(1, np.int64), np.ones(1, np.uint64), one, one, np.array([0, 2]),
                        np.array([5, 2**63], np.uint64), np.ones(2))  # fmt: skip
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, loss in (("ftrl_proximal", "logistic"), ("normalized", "squared")):
            learner = Learner(make_optimizer({"name": name}), loss=make_loss(loss))
            save_learner(learner, Path(folder) / "empty")
            found[f"{name}-empty"] = (Path(folder) / "empty").read_bytes()
            for record in encode_examples(0, 0, 1, rows):
                learner.fold(decode(record), 0)
            save_learner(learner, Path(folder) / "rows")
            found[f"{name}-rows"] = (Path(folder) / "rows").read_bytes()
    return found


def configurations() -> dict[str, bytes]:
    """The project's configurations, and overrides, behind the byte that tells which they are."""
    folder = Path(__file__).resolve().parents[2] / "configs"
    found = {file.stem: b"\0" + file.read_bytes() for file in sorted(folder.glob("*.yaml"))}
    found["overrides"] = b"\x01join.window=10m\nlearner.optimizer.name=adagrad\nfeatures.crosses=[[a, b]]"
    found["deep"] = b"\x01join.window=" + b"[" * 2000 + b"\nfeatures.crosses=" + b"{a: " * 500
    found["variables"] = b"\x02JOIN__WINDOW=10m\nLEARNER__OPTIMIZER__ALPHA=0.5\nTELEMETRY__HTTP_PORT=1"
    return found


WRITERS: Mapping[str, Callable[[], dict[str, bytes]]] = {
    "impressions": events,
    "clicks": events,
    "requests": requests,
    "avro-records": avro_records,
    "predictions": predictions,
    "log-records": log_records,
    "snapshot-records": snapshot_records,
    "scorer-copies": scorer_copies,
    "checkpoints": checkpoints,
    "checkpoint-copies": checkpoint_copies,
    "control": control_records,
    "rule-r": rule_r,
    "libsvm-text": libsvm_text,
    "csv-text": csv_text,
    "json-lines": json_lines,
    "vw-text": vw_text,
    "snapshot-sequences": snapshot_sequences,
    "model-files": model_files,
    "configuration": configurations,
}


def main() -> None:
    """Write all seeds."""
    for name, make in WRITERS.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            if not file.name.startswith("found-"):
                file.unlink()
        for file_name, content in make().items():
            (folder / file_name).write_bytes(content)


if __name__ == "__main__":
    main()
