"""Files as blocks of whole lines: every compression, damage, chunk borders anywhere, lines without end."""

from __future__ import annotations

import gzip
import io
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_learner.errors import BadInput
from stream_learner.evaluate.files.formats import csv_columns, guess_format, guess_separator
from stream_learner.evaluate.files.lines import Block, blocks_of
from stream_learner.evaluate.files.reading import Meaning, block_parsers, open_source
from stream_learner.evaluate.files.source import TextSource
from stream_learner.evaluate.files.streams import FileStream
from tests.waiting import patience


def zstd(data: bytes) -> bytes:
    """One frame that does not say how much it holds, as a pipe makes it."""
    out = io.BytesIO()
    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(out, closefd=False) as writer:
        writer.write(data)
    return out.getvalue()


SKIPPED = b"\x52\x2a\x4d\x18\x03\x00\x00\x00abc"
COMPRESSIONS = {
    "none": lambda parts: b"".join(parts),
    "gzip": lambda parts: b"".join(map(gzip.compress, parts or [b""])),
    "zstd": lambda parts: SKIPPED + b"".join(map(zstd, parts or [b""])),
}


def read(path: Path, **options: int) -> list[Block]:
    """All blocks of a file."""
    with FileStream(str(path)) as stream:
        return list(blocks_of(stream, **options))


def lines_by_number(blocks: list[Block]) -> dict[int, bytes]:
    """Each line, with its newline, by its number; each block is of whole lines."""
    found: dict[int, bytes] = {}
    for block in blocks:
        for place, line in enumerate(block.text.splitlines(keepends=True) if block.text else []):
            assert block.first_line + place not in found
            found[block.first_line + place] = line
    return found


@given(
    st.lists(st.lists(st.sampled_from([b"\n", b"a", b"bcd", b"\r\n", b"efghijk"])).map(b"".join), max_size=6),
    st.sampled_from(sorted(COMPRESSIONS)),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_hold_every_line_once_wherever_they_are_cut(
    tmp_path: Path, parts: list[bytes], kind: str, block_bytes: int, mark: bool
) -> None:
    """Members and frames one after another, empty ones among them; the mark of UTF-8 is left out."""
    whole = b"".join(parts)
    parts = [b"\xef\xbb\xbf", *parts] if mark else parts
    path = tmp_path / "text"
    path.write_bytes(COMPRESSIONS[kind](parts))
    blocks = read(path, block_bytes=block_bytes)
    split = [line + b"\n" for line in whole.split(b"\n")[:-1]] + [whole.rpartition(b"\n")[2]]
    assert b"".join(block.text for block in blocks) == whole
    assert all(block.text.endswith(b"\n") for block in blocks[:-1])
    for block in blocks:
        lines = block.text.split(b"\n")
        assert block.text.startswith(split[block.first_line - 1])
        assert len(lines) - 1 <= len(split)
    assert [block.first_line for block in blocks] == [
        1 + b"".join(block.text for block in blocks[:place]).count(b"\n") for place in range(len(blocks))
    ]


@given(
    st.lists(st.integers(0, 14), max_size=12),
    st.integers(1, 8),
    st.integers(1, 30),
    st.sampled_from(sorted(COMPRESSIONS)),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_line_that_is_too_long_is_a_fault_and_the_others_are_read(
    tmp_path: Path, lengths: list[int], most: int, block_bytes: int, kind: str
) -> None:
    """Whatever the size of blocks, the same lines are too long; their newline does not count."""
    path = tmp_path / "text"
    path.write_bytes(COMPRESSIONS[kind]([b"\n".join(b"x" * length for length in lengths)]))
    blocks = read(path, block_bytes=block_bytes, max_line_bytes=most)
    good = {place: length for place, length in enumerate(lengths, 1) if length <= most}
    if lengths and lengths[-1] == 0:
        good.pop(len(lengths))
    assert {place: len(line.rstrip(b"\n")) for place, line in lines_by_number(blocks).items()} == good
    faults = [fault for block in blocks for fault in block.faults]
    assert [(fault.line, fault.column) for fault in faults] == [
        (place, most + 1) for place, length in enumerate(lengths, 1) if length > most
    ]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_file_that_is_cut_off_is_an_error_wherever_it_is_cut(tmp_path: Path, kind: str) -> None:
    """With the file's name and the byte; what lies before is handed out, and nothing else."""
    text = b"".join(b"%d %d\n" % (i, i * i) for i in range(300))
    whole = COMPRESSIONS[kind]([text[:1000], text[1000:]])
    path = tmp_path / "text.gz"
    ends = {len(COMPRESSIONS[kind]([text[:1000]])), len(whole)} | ({len(SKIPPED)} if kind == "zstd" else set())
    for cut in range(5, len(whole) + 1, 7):
        path.write_bytes(whole[:cut])
        if cut in ends:
            continue
        with FileStream(str(path)) as stream:
            got = b""
            with pytest.raises(BadInput, match=rf"text\.gz: cut off: the .* data goes on .*, at byte {cut:,}"):
                while piece := stream.read(50):
                    got += piece
        assert text.startswith(got)
    path.write_bytes(whole)
    assert b"".join(block.text for block in read(path)) == text


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_damaged_compression_is_an_error_that_names_the_place(tmp_path: Path, kind: str) -> None:
    """A checksum or a block that is wrong, and what is no member behind one."""
    whole = bytearray(COMPRESSIONS[kind]([bytes(range(256)) * 400]))
    path = tmp_path / "text"
    path.write_bytes(bytes(whole) + b"something else")
    with pytest.raises(BadInput, match=r"data is damaged .* at byte"):
        read(path)
    whole[-12 if kind == "gzip" else len(whole) // 2] ^= 0x55
    path.write_bytes(whole)
    with pytest.raises(BadInput, match=r"text: (the \w+ data is damaged|cut off).* at byte"):
        read(path)


def test_much_text_from_few_bytes_is_taken_a_little_at_a_time(tmp_path: Path) -> None:
    """A hundred megabytes of zeros in one line: pieces stay small, and the line is a fault."""
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(100 << 20), 9) + gzip.compress(b"\n1 1:1\n"))
    with FileStream(str(path)) as stream:
        assert len(stream.read(1000)) == 1000
    blocks = read(path, max_line_bytes=1 << 20)
    assert [block.text for block in blocks] == [b"", b"1 1:1\n"]
    assert [(fault.line, fault.column) for fault in blocks[0].faults] == [(1, (1 << 20) + 1)]


def test_utf_16_is_refused(tmp_path: Path) -> None:
    """UTF-16 text is refused: it would be read as nonsense."""
    path = tmp_path / "text.csv"
    path.write_bytes("a,b\n1,2\n".encode("utf-16"))
    with pytest.raises(BadInput, match="UTF-16, and UTF-8 is needed"):
        read(path)


def test_zeros_that_fill_up_a_gzip_file_are_passed_over(tmp_path: Path) -> None:
    """Zeros behind the last member are passed over, as gzip does."""
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"1 2:3\n") + bytes(512))
    assert [block.text for block in read(path)] == [b"1 2:3\n"]


class TestSource:
    """Several files, several passes, standard input."""

    def test_files_follow_each_other_and_can_be_read_again(self, tmp_path: Path) -> None:
        """Lines are counted anew in each file, bytes as they lie there."""
        paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
        for path, data in zip(paths, [b"1\n2", gzip.compress(b"3\n"), b""], strict=True):
            path.write_bytes(data)
        source = TextSource([str(path) for path in paths])
        assert source.bytes_total == sum(path.stat().st_size for path in paths)
        for _ in range(2):
            blocks = [(Path(block.path).name, block.first_line, block.text) for block in source.blocks()]
            assert blocks == [("a", 1, b"1\n"), ("a", 2, b"2"), ("b", 1, b"3\n")]
            assert source.bytes_read == source.bytes_total

    def test_standard_input_is_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its first block may be looked at before; a second pass needs a file."""
        text = b"".join(b"%d\n" % i for i in range(100))
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(gzip.compress(text)))))
        source = TextSource(["-"], block_bytes=16)
        assert source.bytes_total is None
        head = source.head("-")
        assert head == source.head("-")
        blocks = list(source.blocks())
        assert blocks[0] == head
        assert b"".join(block.text for block in blocks) == text
        assert source.bytes_read == len(gzip.compress(text))
        with pytest.raises(BadInput, match="standard input can be read only once") as refused:
            source.blocks()
        assert "file" in refused.value.action
        with pytest.raises(BadInput, match="named twice"):
            TextSource(["-", "-"])

    def test_what_is_not_there_or_no_file_is_named(self, tmp_path: Path) -> None:
        """Before anything is read."""
        with pytest.raises(BadInput, match="missing: No such file"):
            TextSource([str(tmp_path / "missing")])
        with pytest.raises(BadInput, match="Is a directory"):
            list(TextSource([str(tmp_path)]).blocks())

    def test_damage_is_reported_to_whoever_takes_blocks(self, tmp_path: Path) -> None:
        """What lies before it comes first."""
        path = tmp_path / "text.gz"
        path.write_bytes(b"".join(gzip.compress(b"%d\n" % i) for i in range(50)) + gzip.compress(b"end")[:-3])
        taken = []
        with pytest.raises(BadInput, match=r"text\.gz: cut off"):
            for block in TextSource([str(path)], block_bytes=8).blocks():
                taken.append(block.text)
        assert b"".join(taken).startswith(b"0\n1\n2\n")

    def test_the_reading_thread_ends_with_its_taker(self, tmp_path: Path) -> None:
        """The thread ends even if blocks were not taken."""
        path = tmp_path / "text"
        path.write_bytes(b"1\n" * 10_000)
        blocks = TextSource([str(path)], block_bytes=10).blocks()
        next(blocks)
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "read-ahead"]
        blocks.close()  # type: ignore[attr-defined]  # a generator
        thread.join(patience())
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("x", b"\n1 'tag| a b:2\n", "vw"),
        ("x", b"-1 3:1 11:0.5 # c\n", "libsvm"),
        ("x", b"1 qid:3 3:1\n", "libsvm"),
        ("x", b'{"a": "1|2"}\n', "json"),
        ("x", b"label,site\n", "csv"),
        ("x", b"label\tsite\n", "csv"),
        ("x.csv.gz", b"a|b\n", "csv"),
        ("x.VW", b"1,2\n", "vw"),
        ("x.svmlight.zst", b"1\n", "libsvm"),
        ("x.jsonl", b"", "json"),
        ("x.csv", b"PAR1", "parquet"),
    ],
)
def test_the_format_is_told_by_name_and_content(tmp_path: Path, name: str, text: bytes, found: str) -> None:
    """Parquet by its first bytes whatever its name, then the name, then the first line."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert guess_format(TextSource([str(path)])) == found


def test_what_no_line_tells_must_be_said(tmp_path: Path) -> None:
    """The error lists the formats."""
    path = tmp_path / "x"
    path.write_bytes(b"1\n")
    with pytest.raises(BadInput, match="does not show of which format") as refused:
        open_source([str(path)])
    assert refused.value.action == "Name the format: vw, libsvm, csv, json, parquet."


def test_csv_files_must_agree_in_their_columns(tmp_path: Path) -> None:
    """The header of each is looked at before any line is read."""
    for name, text in {"a": b"y;x\n1;2\n", "b": b"y;x\n", "c": b"x;y\n", "d": b"x;x\n"}.items():
        (tmp_path / name).write_bytes(text)
    source = TextSource([str(tmp_path / "a"), str(tmp_path / "b")])
    assert (guess_separator(source), csv_columns(source, ";")) == (";", ("y", "x"))
    with pytest.raises(BadInput, match=r"c line 1: its columns are not those of .*/a"):
        csv_columns(TextSource([str(tmp_path / "a"), str(tmp_path / "c")]), ";")
    with pytest.raises(BadInput, match="d line 1: column 2 has the name of column 1"):
        csv_columns(TextSource([str(tmp_path / "d")]), ";")


def test_paths_become_examples(tmp_path: Path) -> None:
    """From a path to columns, with the label found by its usual name; else its name must be given."""
    path = tmp_path / "x.csv.zst"
    path.write_bytes(zstd(b"y,a\n1,2\n0,\n"))
    source, found = open_source([str(path)])
    parse = block_parsers(source, found, Meaning())()
    (parsed,) = [parse(block) for block in source.blocks()]
    assert (found, parsed.batch.label.tolist(), parsed.lines.tolist()) == ("csv", [1.0, 0.0], [2, 3])
    with pytest.raises(BadInput, match="no column 'yy'; the nearest is 'y'"):
        block_parsers(source, found, Meaning(label="yy"))
    path.write_bytes(zstd(b"click,a\n1,2\n"))
    with pytest.raises(BadInput, match="no column is called label or y; there are click, a"):
        block_parsers(source, found, Meaning())
