"""Text files, one after another, as blocks of whole lines that are read ahead. Standard input can be read only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from stream_learner.errors import BadInput
from stream_learner.evaluate.files.lines import (
    BLOCK_BYTES,
    FIRST_BLOCK_BYTES,
    MAX_LINE_BYTES,
    Block,
    blocks_of,
    read_ahead,
)
from stream_learner.evaluate.files.streams import STDIN, FileStream, size_bytes

_BLOCKS_AHEAD = 2


class TextSource:
    """Blocks of whole lines of one or more files. Files can be read several times, standard input only once."""

    def __init__(
        self, paths: Sequence[str], *, block_bytes: int = BLOCK_BYTES, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        """Raises BadInput if a file is missing, or standard input is named twice."""
        if list(paths).count(STDIN) > 1:
            raise BadInput("standard input was named twice", action="Name it once.")
        sizes = [size_bytes(path) for path in paths]
        self.paths = tuple(paths)
        self.bytes_total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._block_bytes = block_bytes
        self._max_line_bytes = max_line_bytes
        self._read_before = 0
        self._stream: FileStream | None = None
        self._stdin: FileStream | None = None
        self._stdin_blocks: list[Block] = []
        self._stdin_rest: Iterator[Block] | None = None
        self._stdin_read = False

    @property
    def bytes_read(self) -> int:
        """Bytes read from the files in this pass, before decompression. Any thread may ask."""
        stream = self._stream
        return self._read_before + (stream.bytes_read if stream else 0)

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order, read a little ahead by a thread; called again for each further pass.

        Raises BadInput for damaged files, and if standard input was read before.
        """
        if STDIN in self.paths and self._stdin_read:
            raise BadInput(
                "standard input can be read only once",
                action="Put the examples into a file, and name the file, for several passes.",
            )
        self._stdin_read = STDIN in self.paths
        return read_ahead(self._blocks, _BLOCKS_AHEAD)

    def head(self, path: str) -> Block | None:
        """The first block of a file, None if it is empty. The block of standard input is kept, and `blocks` begins with
        it.

        Raises BadInput as `blocks` does.
        """
        if path == STDIN:
            if not self._stdin_blocks:
                self._stdin_blocks = [block for block in [next(self._of_stdin(), None)] if block]
            return self._stdin_blocks[0] if self._stdin_blocks else None
        with FileStream(path) as stream:
            return next(blocks_of(stream, min(self._block_bytes, FIRST_BLOCK_BYTES), self._max_line_bytes), None)

    def _blocks(self) -> Iterator[Block]:
        self._read_before = 0
        for path in self.paths:
            if path == STDIN:
                self._of_stdin()
                self._stream = self._stdin
                yield from self._stdin_blocks
                yield from self._of_stdin()
            else:
                with closing(FileStream(path)) as self._stream:
                    yield from blocks_of(self._stream, self._block_bytes, self._max_line_bytes)
            self._read_before = self.bytes_read
            self._stream = None

    def _of_stdin(self) -> Iterator[Block]:
        """The blocks of standard input that are not read yet."""
        if self._stdin_rest is None:
            self._stdin = FileStream(STDIN)
            self._stdin_rest = blocks_of(self._stdin, self._block_bytes, self._max_line_bytes)
        return self._stdin_rest
