"""Answers for a client that cannot take them as the engine frames them.

In: an answer's bytes as they came.  Out: the bytes for the client.  Most answers pass as they are, without this.
"""

from __future__ import annotations

from typing import Protocol

import httptools


class Reframing(Protocol):
    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class IntoChunks:
    """What ends with the engine's connection, for a client whose connection goes on."""

    def feed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)

    def end(self) -> bytes:
        return b"0\r\n\r\n"


class OutOfChunks:
    """Chunks, for a client of HTTP/1.0; raises what httptools raises."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def feed(self, data: bytes) -> bytes:
        self._parser.feed_data(data)
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def end(self) -> bytes:
        return b""
