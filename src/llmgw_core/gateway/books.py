"""What is counted and logged of each request."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from llmgw_core.gateway import board
from llmgw_core.gateway.access_log import AccessLog, Entry
from llmgw_core.gateway.answer import Refusal
from llmgw_core.gateway.replica import ServedReplica
from llmgw_core.gateway.request import Request

if TYPE_CHECKING:
    from llmgw_core.gateway.client import Client
    from llmgw_core.gateway.exchange import Exchange

_TOKENS_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_TOKENS_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_BETWEEN_CHUNKS = re.compile(rb"\r\n[0-9a-fA-F]+(?:;[^\r\n]*)?\r\n")
_CAUSE_CELLS = {cause: board.CAUSE + each for each, cause in enumerate(board.CAUSES)}


class Books:
    def __init__(self, row: board.Row[int], log: AccessLog | None, clock: Callable[[], float]) -> None:
        self._row = row
        self._uses = board.Uses(row)
        self._log = log
        self._clock = clock

    def enter(self, exchange: Exchange) -> None:
        """A request has ended, one way or another."""
        row, replica, key = self._row, exchange.replica, exchange.key
        now = monotonic()
        tokens_in, tokens_out = read_usage(exchange.tail, chunked=exchange.is_chunked)
        if not tokens_in and exchange.sent_bytes > len(exchange.tail):
            tokens_in, tokens_out = read_usage(exchange.start, chunked=exchange.is_chunked)
        row[key.cell] -= 1
        use = self._uses.cell(key.place, exchange.model.place)
        row[use + board.USE_REQUESTS] += 1
        if tokens_in or tokens_out:
            row[use + board.USE_TOKENS_IN] += tokens_in
            row[use + board.USE_TOKENS_OUT] += tokens_out
        if replica is None:
            row[board.own_cell(exchange.status)] += 1
        else:
            self._enter_replica(exchange, replica.cell, now, tokens_in, tokens_out)
        if self._log is not None:
            self._log.add(self._entry(exchange, now, tokens_in, tokens_out))

    def _entry(self, exchange: Exchange, now: float, tokens_in: int, tokens_out: int) -> Entry:
        request, replica = exchange.request, exchange.replica
        return Entry(
            self._clock(),
            request.request_id.decode(),
            exchange.client.address,
            request.method.decode(),
            request.target.decode("latin-1"),
            exchange.status,
            round(now - request.began, 6),
            exchange.key.id,
            exchange.model.route.name,
            replica.target.replica if replica is not None else "",
            round(exchange.first_at - request.began, 6) if exchange.first_at else None,
            exchange.sent_bytes,
            tokens_in,
            tokens_out,
            exchange.retries,
            exchange.cause,
        )

    def _enter_replica(self, exchange: Exchange, cell: int, now: float, tokens_in: int, tokens_out: int) -> None:
        row, began = self._row, exchange.request.began
        row[cell + exchange.status // 100 - 1] += 1
        board.observe(row, cell + board.TOTAL, now - began)
        if exchange.retries:
            row[cell + board.RETRIED] += exchange.retries
        if exchange.first_at:
            board.observe(row, cell + board.FIRST, exchange.first_at - began)
        if tokens_in or tokens_out:
            row[cell + board.TOKENS_IN] += tokens_in
            row[cell + board.TOKENS_OUT] += tokens_out

    def note_cause(self, replica: ServedReplica, cause: str) -> None:
        """A request at that replica ended so, or was tried again elsewhere."""
        self._row[replica.cell + _CAUSE_CELLS[cause]] += 1

    def enter_own(self, client: Client, request: Request, status: int, cause: str = "") -> None:
        """An answer for which no replica was asked."""
        self._row[board.own_cell(status)] += 1
        if self._log is None:
            return
        took = round(monotonic() - request.began, 6)
        text = (request.request_id, client.address.encode(), request.method, request.target)
        known, address, method, path = (each.decode("latin-1") for each in text)
        who, model = request.key_id, request.asked
        self._log.add(Entry(self._clock(), known, address, method, path, status, took, who, model, cause=cause))

    def enter_refusal(self, client: Client, refusal: Refusal, request: Request) -> None:
        self.enter_own(client, request, refusal.status, refusal.code or "")


def read_usage(tail: bytes, *, chunked: bool = False) -> tuple[int, int]:
    """Tokens in and out, as the end of an answer states them last; 0 where it does not."""
    if chunked:
        tail = _BETWEEN_CHUNKS.sub(b"", tail)
    begin = tail.rfind(b'"usage"')
    if begin < 0:
        return 0, 0
    tokens_in, tokens_out = _TOKENS_IN.search(tail, begin), _TOKENS_OUT.search(tail, begin)
    return int(tokens_in[1]) if tokens_in else 0, int(tokens_out[1]) if tokens_out else 0
