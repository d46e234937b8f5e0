"""One text that one process puts down and its fellows read, in memory that all of them see: no disk, no partial reads.

There are two halves. The next text goes into the one that the last did not, and only then counts.
"""

from __future__ import annotations

import mmap
import struct

from llmgw_core.errors import LlmgwError

HALF_BYTES = 24 * 1024 * 1024
"""A table of routes at its limit, and the places. Pages that nobody wrote to take no memory."""
_HEAD = struct.Struct("qqq")
"""How many texts there were, and the lengths of both halves."""


class Shelf:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD.size + 2 * HALF_BYTES)

    def put(self, text: bytes) -> None:
        """By one process only."""
        if len(text) > HALF_BYTES:
            raise LlmgwError(f"a table of {len(text)} bytes, over {HALF_BYTES}")
        count, *lengths = self._head()
        half = (count + 1) % 2
        begin = _HEAD.size + half * HALF_BYTES
        self._memory[begin : begin + len(text)] = text
        lengths[half] = len(text)
        _HEAD.pack_into(self._memory, 0, count, *lengths)
        _HEAD.pack_into(self._memory, 0, count + 1, *lengths)

    def get(self) -> bytes:
        """The last text; empty before there is one."""
        while True:
            count, *lengths = self._head()
            begin = _HEAD.size + count % 2 * HALF_BYTES
            text = self._memory[begin : begin + lengths[count % 2]]
            if self._head()[0] == count:
                return text

    def _head(self) -> tuple[int, ...]:
        return _HEAD.unpack_from(self._memory)
