"""One request's way: to a replica, back to its client, and into the books.

    what happens                                   before the answer's first byte          after it
    --------------------------------------------   -------------------------------------   -------------------------
    a connection that was idle is lost             once more there, on a fresh one         the client's is broken off
    a fresh one is refused or lost, or late        once more at another replica, 502, 504  likewise
    no byte within the time allowed                504                                     likewise
    nonsense                                       502                                     likewise
    the client leaves                              the connection to the engine is closed  likewise

Rules: an answer passes byte for byte, but for the fields of its connection; an answer that is not whole never ends as
if it were; whatever happens, what was counted as begun is counted as ended, once.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from llmgw_core.gateway.answer import Refusal, render_error_event
from llmgw_core.gateway.board import CAUSES
from llmgw_core.gateway.flow import FULL_BYTES
from llmgw_core.gateway.framing import IntoChunks, OutOfChunks, Reframing
from llmgw_core.gateway.replica import ServedModel, ServedReplica
from llmgw_core.gateway.request import Request
from llmgw_core.gateway.upstream import BODILESS, State, Upstream, open_connection
from llmgw_core.plan.route_words import why_none_is_ready

if TYPE_CHECKING:
    from llmgw_core.gateway.client import Client
    from llmgw_core.gateway.held_key import HeldKey
    from llmgw_core.gateway.worker import Worker

START_BYTES, TAIL_BYTES = 512, 1024
"""Of an answer's begin and end: the engine's usage stands there, in the last object or in one of the last events, or
before the numbers of llama.cpp's embeddings."""
CLIENT_LEFT = 499
"""As nginx logs it."""

_DROPPED = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"x-request-id"})
_LOOKED_AT = _DROPPED | {b"content-length", b"transfer-encoding", b"content-type"}
_REFUSED, _CONNECT_TIMEOUT, _LOST_BEFORE, _LOST_IN, _ANSWER_TIMEOUT, _STALLED, _NONSENSE, _CLIENT_LEFT, _STOPPED = (
    CAUSES
)
_WORDS = {
    _REFUSED: "refuses connections",
    _CONNECT_TIMEOUT: "does not take a connection in time",
    _LOST_BEFORE: "closed the connection before it answered",
    _LOST_IN: "closed the connection within its answer",
    _ANSWER_TIMEOUT: "did not begin to answer in time",
    _STALLED: "went silent within its answer",
    _STOPPED: "is not heard any more, since the gateway stops",
}
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
_AGAIN = (_REFUSED, _CONNECT_TIMEOUT, _LOST_BEFORE)
_TIMEOUTS = (_CONNECT_TIMEOUT, _ANSWER_TIMEOUT)


class Exchange:
    """From the whole request to the end of its answer."""

    __slots__ = (
        "_ends_with_client",
        "_event_stream",
        "_freshened",
        "_meeting",
        "_over",
        "_reframing",
        "_stall_s",
        "_tried",
        "cause",
        "client",
        "ends_with_connection",
        "first_at",
        "is_chunked",
        "key",
        "length",
        "model",
        "replica",
        "request",
        "retries",
        "sent_bytes",
        "start",
        "status",
        "tail",
        "upstream",
        "worker",
    )

    def __init__(self, worker: Worker, client: Client, request: Request, model: ServedModel, key: HeldKey) -> None:
        self.worker = worker
        self.client = client
        self.request = request
        self.model = model
        self.key = key
        self.replica: ServedReplica | None = None
        self.upstream: Upstream | None = None
        self.retries = 0
        self.status = 0
        """Of the answer; 0 before it begins."""
        self.cause = ""
        self.first_at = 0.0
        """When the first byte of the answer's body came."""
        self.sent_bytes = 0
        self.length: int | None = None
        """Of the answer's body, as stated."""
        self.start = self.tail = b""
        self.is_chunked = self.ends_with_connection = False
        self._tried: tuple[ServedReplica, ...] = ()
        self._freshened = self._over = False
        self._event_stream = self._ends_with_client = False
        self._reframing: Reframing | None = None
        self._stall_s = worker.settings.stall_s
        self._meeting = worker.meeting_of(request, model)

    # Towards the engine.

    def begin(self) -> None:
        """Send the request to a replica, or have it wait for one, or refuse it."""
        replica = self.model.choose(self.worker.poller.now, self._tried, self._meeting)
        if replica is not None:
            self.retries = len(self._tried)
            self._send_to(replica, fresh=self.retries > 0)
        elif self._tried:
            self._give_up()
        elif self.worker.may_wait(self):
            self.model.waiting.add(self)
            self.client.deadline = self.worker.poller.now + self.worker.settings.hold_s
        else:
            self.refuse_unready()

    def _send_to(self, replica: ServedReplica, *, fresh: bool) -> None:
        self.replica = replica
        replica.begin()
        upstream = None if fresh else self._idle_one(replica)
        try:
            upstream = upstream or self._connect(replica)
        except OSError as error:
            replica.end()
            if error.errno in _NO_ROOM:
                said = f"the gateway has no room for another connection: {error.strerror}"
                self._refuse(Refusal(503, said, "overloaded", retry_after_s=self.worker.settings.retry_after_s))
            else:
                self._retry_or_give_up(_REFUSED)
            return
        self.upstream = upstream
        settings, request = self.worker.settings, self.request
        wait = settings.connect_s if upstream.state is State.CONNECTING else settings.answer_s
        upstream.deadline = self.worker.poller.now + wait
        upstream.start(self, self._head(replica), request.body)

    def _idle_one(self, replica: ServedReplica) -> Upstream | None:
        now = self.worker.poller.now
        while replica.idle:
            upstream = replica.idle.pop()
            if upstream.deadline > now:
                return upstream
            upstream.close()
        return None

    def _connect(self, replica: ServedReplica) -> Upstream:
        connection = open_connection(replica.target, self.worker.settings.silent_s)
        upstream = Upstream(self.worker.poller, connection, replica)
        self.worker.flows.add(upstream)
        return upstream

    def _head(self, replica: ServedReplica) -> bytes:
        request = self.request
        own = b"x-request-id: %s\r\ncontent-length: %d\r\n\r\n" % (request.request_id, len(request.body))
        return b"".join((request.method, b" ", request.target, replica.head, *request.fields, own))

    def connected(self) -> None:
        if self.upstream is not None:
            self.upstream.deadline = self.worker.poller.now + self.worker.settings.answer_s

    # Back to the client.

    def answer(self, status: int, reason: bytes, fields: list[tuple[bytes, bytes]], rest: bytes) -> None:
        """The head of the answer is there, and what came with it: they go on together, for each sending costs."""
        if self.replica is not None:
            self.replica.note_answer()
        self.status = status
        self._stay_awake()
        # Many are held for minutes: what would only be needed to ask again goes.
        self.request.body = bytearray()
        self.request.fields.clear()
        lines = [b"HTTP/1.1 %d %s\r\n" % (status, reason)]
        framed = status in BODILESS
        is_clear = True
        for name, value in fields:
            lowered = name.lower()
            if lowered not in _LOOKED_AT:
                pass
            elif lowered in _DROPPED:
                continue
            elif lowered == b"content-length":
                framed, self.length = True, int(value)
            elif lowered == b"transfer-encoding":
                is_clear = value.lower() == b"chunked" and not self.is_chunked
                framed = self.is_chunked = True
                if not self.request.minor:
                    continue
            elif lowered == b"content-type" and value[:17].lower() == b"text/event-stream":
                self._event_stream = True
            lines += (name, b": ", value, b"\r\n")
        if not is_clear:
            self.status = 0
            self.fail(_NONSENSE, "its answer has a transfer coding that nobody asked for")
            return
        self.ends_with_connection = not framed
        lines += self._own_fields(fields)
        if rest:
            lines.append(self._note(rest))
        self.client.write(b"".join(lines))

    def _own_fields(self, fields: list[tuple[bytes, bytes]]) -> list[bytes]:
        lines = [b"x-request-id: %s\r\n" % self.request.request_id]
        if self._event_stream:
            given = {name.lower() for name, _ in fields}
            lines += [line for name, line in _UNBUFFERED if name not in given]
        if self.is_chunked and not self.request.minor:
            self._reframing, self._ends_with_client = OutOfChunks(), True
        elif self.ends_with_connection and self.request.minor:
            self._reframing = IntoChunks()
            lines.append(b"transfer-encoding: chunked\r\n")
        elif self.ends_with_connection:
            self._ends_with_client = True
        if not self.client.stays(self.request):
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return lines

    def relay(self, data: bytes) -> None:
        """Bytes of the answer's body, as they came."""
        upstream, client = self.upstream, self.client
        client.write(self._note(data))
        if client.kept_bytes > FULL_BYTES and upstream is not None:
            upstream.read_on(False)
            upstream.deadline = self.worker.poller.now + self.worker.settings.answer_s

    def _note(self, data: bytes) -> bytes:
        """Count what came, and give it as the client takes it."""
        now = self.worker.poller.now
        if not self.first_at:
            self.first_at = now
            self.start = data[:START_BYTES]
        self.tail = data if len(data) >= TAIL_BYTES else (self.tail + data)[-TAIL_BYTES:]
        self.sent_bytes += len(data)
        if self.upstream is not None:
            self.upstream.deadline = now + self._stall_s
        return data if self._reframing is None else self._reframing.feed(data)

    def client_drained(self) -> None:
        if self.upstream is not None:
            self._stay_awake()
            self.upstream.read_on(True)

    def _stay_awake(self) -> None:
        if self.upstream is not None:
            self.upstream.deadline = self.worker.poller.now + self.worker.settings.stall_s

    def complete(self) -> None:
        """The answer is whole."""
        if self._reframing is not None:
            self.client.write(self._reframing.end())
        self._let_go(keep=True)
        self._end("")
        self.client.finished(stays=not self._ends_with_client and self.client.stays(self.request))

    # What goes wrong.

    def lose(self) -> None:
        """The connection to the engine is no more."""
        state = self.upstream.state if self.upstream is not None else State.CONNECTING
        self.fail(_REFUSED if state is State.CONNECTING else _LOST_IN if state is State.BODY else _LOST_BEFORE)

    def expire(self) -> None:
        """The engine took too long."""
        state = self.upstream.state if self.upstream is not None else State.CONNECTING
        timeout = _CONNECT_TIMEOUT if state is State.CONNECTING else _ANSWER_TIMEOUT
        self.fail(_STALLED if state is State.BODY else timeout)

    def fail(self, cause: str, why: str = "") -> None:
        upstream, replica = self.upstream, self.replica
        if upstream is None or replica is None:
            return
        if self.status:
            self._break_off(upstream, cause, why)
            return
        self._let_go(keep=False)
        if cause == _LOST_BEFORE and upstream.is_reused and not self._freshened:
            self._freshened = True
            self._send_to(replica, fresh=True)
        else:
            self._retry_or_give_up(cause, why)

    def _retry_or_give_up(self, cause: str, why: str = "") -> None:
        replica = self.replica
        if replica is None:
            return
        self.worker.books.note_cause(replica, cause)
        self.cause = cause
        if cause in _AGAIN:
            replica.note_failure(self.worker.poller.now)
            self._tried += (replica,)
            if len(self._tried) == 1:
                self.begin()
                return
        self._give_up(why)

    def _give_up(self, why: str = "") -> None:
        where = self.replica.target.replica if self.replica is not None else self.model.route.name
        said = f"replica {where} {why or _WORDS.get(self.cause, 'failed')}"
        self._refuse(Refusal(504 if self.cause in _TIMEOUTS else 502, said, self.cause))

    def waited_in_vain(self) -> None:
        """No replica became ready within the time that requests are held."""
        if self in self.model.waiting:
            self.model.waiting.discard(self)
            self.refuse_unready()

    def refuse_unready(self) -> None:
        said = why_none_is_ready(self.model.route, self.worker.clock())
        self._refuse(Refusal(503, said, "no_replica_ready", retry_after_s=self.worker.settings.retry_after_s))

    def _refuse(self, refusal: Refusal) -> None:
        self.status = refusal.status
        self._end(self.cause or refusal.code or "")
        self.client.refuse(refusal, self.request)

    def _break_off(self, upstream: Upstream, cause: str, why: str) -> None:
        replica = self.replica
        if self._is_between_events() and upstream.is_between_chunks():
            said = f"replica {upstream.replica.target.replica} {why or _WORDS[cause]}"
            self.client.write(IntoChunks().feed(render_error_event(said)))
        self._let_go(keep=False)
        if replica is not None:
            self.worker.books.note_cause(replica, cause)
        self._end(cause)
        self.client.break_off(visibly=not self._ends_with_client)

    def _is_between_events(self) -> bool:
        """Whether an event of our own could follow what was sent of a stream of chunks."""
        passes = self._event_stream and self.is_chunked and self._reframing is None
        return passes and (not self.tail or self.tail.removesuffix(b"\r\n").endswith((b"\n\n", b"\n\r\n")))

    def cut(self) -> None:
        """The gateway stops, and has no more time for it."""
        if self.status:
            self.fail(_STOPPED)
            return
        self.model.waiting.discard(self)
        self._let_go(keep=False)
        if self.replica is not None:
            self.worker.books.note_cause(self.replica, _STOPPED)
        self._refuse(Refusal(503, "the gateway stops", _STOPPED, retry_after_s=1.0))

    def client_left(self) -> None:
        """The client is no more; its request is not worked on any longer."""
        if self._over:
            return
        self.model.waiting.discard(self)
        cause = "" if self._has_said_all() else _CLIENT_LEFT
        if cause and self.replica is not None and self.upstream is not None:
            self.worker.books.note_cause(self.replica, cause)
        self._let_go(keep=False)
        self.status = self.status or CLIENT_LEFT
        self._end(cause)

    def _has_said_all(self) -> bool:
        """Whether the last event of a stream has gone out: clients (openai's) leave then, and miss nothing."""
        return self._event_stream and not self.client.kept_bytes and self.tail.rstrip().endswith(b"[DONE]")

    def _let_go(self, *, keep: bool) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is None:
            return
        upstream.replica.end()
        if keep:
            upstream.release()
        else:
            upstream.exchange = None
            upstream.close()

    def _end(self, cause: str) -> None:
        if self._over:
            return
        self._over = True
        self.cause = cause
        self.worker.books.enter(self)


_UNBUFFERED = ((b"x-accel-buffering", b"x-accel-buffering: no\r\n"), (b"cache-control", b"cache-control: no-cache\r\n"))
