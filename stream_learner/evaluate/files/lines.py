"""Cuts text into blocks of whole lines, and makes them ahead in a thread of their own.

No more of a line is kept than its bound allows, and no part of a line is handed out. The thread ends when nobody takes
blocks any more.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from stream_learner.evaluate.files.streams import FileStream
from stream_learner.evaluate.formats.base import Fault

BLOCK_BYTES: Final = 4 << 20
FIRST_BLOCK_BYTES: Final = 256 << 10
"""The size of the first block. Each next one is twice as large, up to the full size, so that all threads have work
early, and a small file too is cut into several blocks."""
MAX_LINE_BYTES: Final = 16 << 20

_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole lines of a file; the last line of a file may lack its newline.

    faults: a line that is too long; the block then has no text.
    """

    text: bytes
    first_line: int
    path: str
    faults: tuple[Fault, ...] = ()


def blocks_of(
    stream: FileStream, block_bytes: int = BLOCK_BYTES, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Block]:
    """The lines of a stream in blocks of up to about `block_bytes`, or of one line if that is longer.

    A byte order mark of UTF-8 is left out. Raises BadInput as the stream does, and for UTF-16.
    """
    cutter = _Cutter(stream.path, max_line_bytes)
    most_bytes = max(1, min(block_bytes, max_line_bytes))
    piece_bytes = min(FIRST_BLOCK_BYTES, most_bytes)
    pieces = [_without_mark(stream, piece_bytes)]
    size = len(pieces[0])
    while piece := stream.read(piece_bytes):
        pieces.append(piece)
        size += len(piece)
        if size >= piece_bytes:
            for part in _parts(b"".join(pieces), piece_bytes):
                yield from cutter.take(part)
            pieces, size = [], 0
            piece_bytes = min(2 * piece_bytes, most_bytes)
    for part in _parts(b"".join(pieces), piece_bytes):
        yield from cutter.take(part)
    yield from cutter.end()


def _parts(data: bytes, limit_bytes: int) -> Iterator[bytes]:
    """The bytes in parts of at most `limit_bytes`, so that a part holds at most one line that is too long."""
    for start in range(0, len(data), limit_bytes):
        yield data[start : start + limit_bytes]


def _without_mark(stream: FileStream, limit_bytes: int) -> bytes:
    """The first bytes of a text, without the byte order mark."""
    head = b""
    while len(head) < len(_MARK) and (piece := stream.read(limit_bytes)):
        head += piece
    if head.startswith(_UTF_16):
        raise stream.damaged("the text is UTF-16, and UTF-8 is needed")
    return head.removeprefix(_MARK)


class _Cutter:
    """Cuts each piece behind its last newline, and keeps the rest for the next piece."""

    def __init__(self, path: str, max_line_bytes: int) -> None:
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._line = 1
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def take(self, piece: bytes) -> Iterator[Block]:
        """The blocks that end in a piece."""
        behind = piece.rfind(b"\n") + 1
        if behind:
            first = piece.find(b"\n") + 1
            if self._rest_bytes + first - 1 > self._max_line_bytes:
                yield self._too_long()
                piece = piece[first:]
                behind -= first
            text = b"".join([*self._rest, piece[:behind]])
            self._rest, self._rest_bytes = [], 0
            if text:
                yield self._block(text)
        self._keep(piece[behind:])

    def end(self) -> Iterator[Block]:
        """The block of what follows the last newline."""
        if self._rest_bytes > self._max_line_bytes:
            yield self._too_long()
        elif self._rest:
            yield self._block(b"".join(self._rest))

    def _keep(self, data: bytes) -> None:
        """Keep the beginning of a line; of a line that is too long only its length."""
        self._rest_bytes += len(data)
        if self._rest_bytes > self._max_line_bytes:
            self._rest = []
        elif data:
            self._rest.append(data)

    def _block(self, text: bytes) -> Block:
        block = Block(text, self._line, self._path)
        self._line += text.count(b"\n")
        return block

    def _too_long(self) -> Block:
        expected = f"a line of at most {self._max_line_bytes:,} bytes"
        self._rest, self._rest_bytes = [], 0
        self._line += 1
        return Block(b"", self._line - 1, self._path, (Fault(self._line - 1, self._max_line_bytes + 1, expected),))


Item = TypeVar("Item")

_LOOK_EVERY_S: Final = 0.2


class _End:
    """Follows the last item in the queue. error: why there are no more, None at the end."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Ahead(Generic[Item]):
    """The thread that makes items, and the queue to the one who takes them."""

    def __init__(self, make: Callable[[], Iterator[Item]], items: int) -> None:
        self._make = make
        self._queue: queue.Queue[Item | _End] = queue.Queue(items)
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def taken(self) -> Iterator[Item]:
        self._thread.start()
        try:
            while not isinstance(item := self._queue.get(), _End):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            self._unwanted.set()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._make():
                if not self._put(item):
                    return
        except BaseException as found:  # noqa: BLE001 - raised again where items are taken
            error = found
        self._put(_End(error))

    def _put(self, item: Item | _End) -> bool:
        """Hand an item over. Returns False if nobody takes items any more."""
        while not self._unwanted.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_EVERY_S)
            except queue.Full:
                continue
            return True
        return False


def read_ahead(make: Callable[[], Iterator[Item]], items: int) -> Iterator[Item]:
    """The items of the iterator that `make` returns, up to `items` of them made ahead in a thread.

    An exception of the iterator is raised here, behind the items before it.
    """
    return _Ahead(make, items).taken()
