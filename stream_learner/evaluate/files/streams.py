"""The bytes of a file or of standard input, decompressed. The first bytes tell how a file is compressed, not its name.

| first bytes | compressed by | several in a row |
|---|---|---|
| `1f 8b` | gzip | members, as `cat a.gz b.gz` makes them |
| `28 b5 2f fd`, `5? 2a 4d 18` | Zstandard | frames, and frames to be skipped |
| else | nothing | |
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from typing import Any, Final, Protocol

from stream_learner.errors import BadInput

STDIN: Final = "-"
EXTRA: Final = "stream-learner[evaluate]"

_CHUNK_BYTES = 1 << 18
_ZSTD_SLICE_BYTES = 1 << 12
"""Compressed bytes taken at once. It is little, because they may decompress to a hundred thousand times as much."""
_MAX_WINDOW_BYTES = 1 << 31


class Pieces(Protocol):
    """A stream of bytes."""

    def read(self, limit_bytes: int) -> bytes:
        """The next bytes, at least one and about `limit_bytes` at most; none at the end. Raises BadInput."""
        ...


def name_of(path: str) -> str:
    """The name of a path in messages."""
    return "standard input" if path == STDIN else path


def size_bytes(path: str) -> int | None:
    """The size of a file before decompression; None for standard input, pipes and devices. Raises BadInput."""
    if path == STDIN:
        return None
    with _named(path):
        found = os.stat(path)  # noqa: PTH116 - the path is text, since `-` is no path
    return found.st_size if stat.S_ISREG(found.st_mode) else None


class FileStream:
    """The bytes of one file, decompressed. The owner closes it.

    bytes_read: how many bytes have been read from the file, before decompression.
    """

    def __init__(self, path: str) -> None:
        """Raises BadInput if the file cannot be opened, or a library that it needs is missing."""
        self.path = path
        self.bytes_read = 0
        self._kept = b""
        with _named(path):
            # Closed by `close`. The path is text, since `-` is no path.
            self._file: BufferedReader | FileIO = _stdin() if path == STDIN else open(path, "rb")  # noqa: SIM115, PTH123
        try:
            head = self._head()
            self._pieces = self._decompressed(head)
        except BaseException:
            self.close()
            raise

    def read(self, limit_bytes: int) -> bytes:
        """The next bytes, at least one and about `limit_bytes` at most; none at the end.

        Raises BadInput, with file and byte, for compressed data that is damaged or cut off.
        """
        return self._pieces.read(limit_bytes)

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.path != STDIN:
            self._file.close()

    def __enter__(self) -> FileStream:
        return self

    def __exit__(self, *of_error: object) -> None:
        self.close()

    def raw(self, limit_bytes: int) -> bytes:
        """The next bytes of the file without decompression; none at the end."""
        kept, self._kept = self._kept[:limit_bytes], self._kept[limit_bytes:]
        return kept or self._take(limit_bytes)

    def damaged(self, what: str) -> BadInput:
        """The error for damage found near the current byte."""
        return BadInput(f"{name_of(self.path)}: {what}, at byte {self.bytes_read:,} or shortly before")

    def _head(self) -> bytes:
        """The first four bytes, or all of a shorter file. They are read again later."""
        while len(self._kept) < 4:
            data = self._take(4 - len(self._kept))
            if not data:
                break
            self._kept += data
        return self._kept

    def _take(self, limit_bytes: int) -> bytes:
        with _named(self.path):
            data = _read(self._file, limit_bytes)
        self.bytes_read += len(data)
        return data

    def _decompressed(self, head: bytes) -> Pieces:
        if head.startswith(b"\x1f\x8b"):
            return _Members(self, lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), "gzip", _CHUNK_BYTES)
        if head == b"\x28\xb5\x2f\xfd" or (head[1:] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
            return _Members(self, _zstandard_frames(self.path), "Zstandard", _ZSTD_SLICE_BYTES)
        return _Plain(self)


class _Plain:
    """Bytes of a file that is not compressed."""

    def __init__(self, stream: FileStream) -> None:
        self._stream = stream

    def read(self, limit_bytes: int) -> bytes:
        return self._stream.raw(limit_bytes)


class _Members:
    """Decompresses the members or frames of a file, one after another."""

    def __init__(self, stream: FileStream, begin: Callable[[], Any], kind: str, slice_bytes: int) -> None:
        self._stream = stream
        self._begin = begin
        self._kind = kind
        self._slice_bytes = slice_bytes
        self._member = begin()
        self._begun = False
        self._left = b""

    def read(self, limit_bytes: int) -> bytes:
        while True:
            data = self._left or self._stream.raw(self._slice_bytes)
            self._left = b""
            if not data:
                out = self._take(b"", limit_bytes) if self._begun else b""
                if self._begun and not out:
                    raise self._stream.damaged(f"cut off: the {self._kind} data goes on behind the end of the file")
                return out
            out = self._take(data, limit_bytes)
            if out:
                return out

    def _take(self, data: bytes, limit_bytes: int) -> bytes:
        """Decompress some bytes; those beyond the limit or the member are kept for the next call."""
        if not self._begun and self._kind == "gzip" and not data.strip(b"\0"):
            return b""  # as gzip does, skip zeros that fill up a block of a tape
        self._begun = True
        try:
            if self._kind == "gzip":
                out: bytes = self._member.decompress(data, limit_bytes)
                self._left = self._member.unconsumed_tail
            else:
                out = self._member.decompress(data)
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            raise self._stream.damaged(f"the {self._kind} data is damaged ({error})") from None
        if self._member.eof:
            self._left = self._member.unused_data
            self._member = self._begin()
            self._begun = False
        return out


def _zstandard_frames(path: str) -> Callable[[], Any]:
    try:
        import zstandard
    except ImportError:
        raise BadInput(
            f"{name_of(path)} is compressed by Zstandard, and the package zstandard is not installed",
            action=f"Install {EXTRA}, or decompress the file.",
        ) from None
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj


def _stdin() -> Any:
    """Standard input without its buffer: a thread waiting for bytes would hold the buffer's lock when the process
    ends."""
    return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)


def _read(file: Any, limit_bytes: int) -> bytes:
    """The bytes that one call of the system returns."""
    data: bytes | None = (file.read1 if hasattr(file, "read1") else file.read)(limit_bytes)
    return data or b""


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn errors of the system into BadInput with the file."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{name_of(path)}: {error.strerror or error}") from None
