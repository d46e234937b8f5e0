"""One process's data path: who may come in, and where each request goes.

Rules: a new table counts for the next request; what runs goes on where it is; a replica to which no table leads any
more keeps its requests and no idle connection; whatever is refused is refused before a replica hears of it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from itertools import count

import trio

from llmgw_core.gateway.access_log import AccessLog
from llmgw_core.gateway.answer import JSON, Refusal, encode_json, no_such_model
from llmgw_core.gateway.board import Board
from llmgw_core.gateway.body import BadBody, affinity_key, read_model, rename_model
from llmgw_core.gateway.books import Books
from llmgw_core.gateway.client import STUCK_S, Client
from llmgw_core.gateway.exchange import Exchange
from llmgw_core.gateway.flow import Flow
from llmgw_core.gateway.held_key import ANYBODY, HeldKeys
from llmgw_core.gateway.metrics import KIND, render_metrics
from llmgw_core.gateway.model_list import list_models, tell_model
from llmgw_core.gateway.place import Places, attempt_name
from llmgw_core.gateway.poller import READ, Poller
from llmgw_core.gateway.replica import ServedModel, ServedReplica
from llmgw_core.gateway.request import Request
from llmgw_core.gateway.settings import DataSettings
from llmgw_core.model.route import Affinity, ModelRoute, RouteTable, Target

SWEEP_EVERY_S = 1.0
_log = logging.getLogger("llmgw.gateway")
MOST_TARGETS = 1024
"""Known to be good, so that they are not looked at again."""
_JSON_LIST = b"/v1/models"
_OWN_PATHS = (_JSON_LIST, b"/health", b"/metrics")


class Worker:
    """`number` is its row on the board."""

    def __init__(
        self,
        settings: DataSettings,
        poller: Poller,
        board: Board,
        number: int = 0,
        log: AccessLog | None = None,
        clock: Callable[[], float] = time.time,  # noqa: TID251 - keys expire and logs are read by this machine's clock
    ) -> None:
        self.settings = settings
        self.poller = poller
        self.clock = clock
        self.flows: set[Flow] = set()
        self.is_stopping = False
        self.held_bytes = 0
        """Of request bodies, about a second ago."""
        self._board = board
        self._row, self._others = board.rows[number], board.others(number)
        self.books = Books(self._row, log, clock)
        self._keys = HeldKeys(self._row, board.rows, clock)
        self._table: RouteTable | None = None
        self._places = Places()
        self._models: dict[str, ServedModel] = {}
        self._by_name: dict[str, ServedModel] = {}
        """Aliases too."""
        self._replicas: dict[Target, ServedReplica] = {}
        self._good_targets: set[bytes] = set()
        self._paused: list[socket.socket] = []
        self._ids = map((os.urandom(10).hex() + "%012x").__mod__, count())

    # The table.

    def take(self, table: RouteTable, places: Places) -> None:
        """From now on requests go by this table."""
        replicas = {target: self._replica(target, places) for model in table.models for target in model.targets}
        for target, replica in self._replicas.items():
            if target not in replicas:
                self._withdraw(replica)
        self._replicas = replicas
        self._models = {route.name: self._model(route, places) for route in table.models}
        self._by_name = {alias: model for model in self._models.values() for alias in model.route.aliases}
        self._by_name |= self._models
        self._keys.take(table.keys, places)
        self._table, self._places = table, places
        self._row[0] = table.version
        self._wake_waiting()

    def _replica(self, target: Target, places: Places) -> ServedReplica:
        known = self._replicas.get(target)
        if known is not None:
            return known
        attempt = places.attempts.get(attempt_name(target), 0)
        return ServedReplica(target, attempt, places.replicas.get(target.replica, 0), self._row, self._others)

    def _withdraw(self, replica: ServedReplica) -> None:
        replica.is_routed = False
        for upstream in [*replica.idle]:
            upstream.close()

    def _model(self, route: ModelRoute, places: Places) -> ServedModel:
        model = self._models.get(route.name) or ServedModel(route, places.models.get(route.name, 0))
        model.route = route
        model.replicas = tuple(self._replicas[target] for target in route.targets)
        return model

    def _wake_waiting(self) -> None:
        for model in self._models.values():
            if model.waiting and model.replicas:
                waiting, model.waiting = model.waiting, set()
                for exchange in waiting:
                    exchange.client.begin(exchange)

    # Requests.

    def judge(self, request: Request) -> Refusal | None:
        """Why a request is refused by its head alone."""
        target = request.target
        if target in self._good_targets and request.method == b"POST":
            needs_key = True
        else:
            if target[:4].lower() == b"http":
                target = request.target = _origin_form(target)
            path = target.partition(b"?")[0]
            refusal = _judge_path(request.method, path)
            if refusal is not None:
                return refusal
            needs_key = path != b"/health"
            if path.startswith(b"/v1/") and self._table is None:
                said = "the gateway has no routes yet: no catalog was applied, or it has not heard of it"
                return Refusal(503, said, "no_routes", retry_after_s=self.settings.retry_after_s)
            if request.method == b"POST" and len(self._good_targets) < MOST_TARGETS:
                self._good_targets.add(target)
        if not needs_key or not self.settings.authenticates:
            request.held_key = ANYBODY
        else:
            request.held_key = self._keys.find(request.key)
            if request.held_key is None:
                request.key_id = self._keys.id_of(request.key)
                return self._keys.refuse(request.key)
            request.key_id = request.held_key.id
        if self.held_bytes > self.settings.bodies_bytes:
            said = "too many requests are being sent at once"
            return Refusal(503, said, "overloaded", retry_after_s=self.settings.retry_after_s)
        return None

    def judge_metrics(self, request: Request) -> Refusal | None:
        """The same on the port of the metrics."""
        request.held_key = ANYBODY
        path = request.target.partition(b"?")[0]
        if path in (b"/metrics", b"/health"):
            return _judge_path(request.method, path)
        return Refusal(404, "here are /metrics and /health only", "not_found")

    def serve(self, client: Client, request: Request) -> None:
        self.identify(request)
        if request.refusal is not None:
            self._refuse(client, request, request.refusal)
        elif request.method == b"POST":
            self._pass_on(client, request)
        else:
            self._answer(client, request, request.target.partition(b"?")[0])

    def identify(self, request: Request) -> None:
        """Every request has an id: the user's own, or one that is made here."""
        if not request.request_id:
            request.request_id = next(self._ids).encode()

    def _refuse(self, client: Client, request: Request, refusal: Refusal) -> None:
        self.books.enter_refusal(client, refusal, request)
        client.refuse(refusal, request)

    def _pass_on(self, client: Client, request: Request) -> None:
        key = request.held_key or ANYBODY
        try:
            name = request.asked = read_model(request.body, request.content_type)
            model = self._by_name.get(name)
            if model is not None and name != model.route.name:
                request.body = bytearray(rename_model(request.body, request.content_type, name, model.route.name))
        except BadBody as error:
            self._refuse(client, request, Refusal(400, str(error), "bad_body", error.param))
            return
        if model is None or not key.may_use(model.route.name):
            self._refuse(client, request, no_such_model(name))
            return
        refusal = self._keys.begin(key)
        if refusal is not None:
            self._refuse(client, request, refusal)
            return
        client.begin(Exchange(self, client, request, model, key))

    def _answer(self, client: Client, request: Request, path: bytes) -> None:
        if path.startswith(b"/v1/models/"):
            self._answer_model(client, request, _unquote(path[len(_JSON_LIST) + 1 :]))
            return
        status, body, kind = self._own_page(request, path)
        self.books.enter_own(client, request, status)
        client.reply(status, body, request, kind)

    def _own_page(self, request: Request, path: bytes) -> tuple[int, bytes, str]:
        if path == b"/metrics":
            return 200, self.metrics(), KIND
        if path == b"/health":
            said = "stopping" if self.is_stopping else "ok" if self._table is not None else "no routes"
            return (200 if said == "ok" else 503), encode_json({"status": said}), JSON
        allowed = (request.held_key or ANYBODY).models
        routes = [model.route for _, model in sorted(self._models.items())]
        return 200, encode_json({"object": "list", "data": list_models(routes, allowed)}), JSON

    def _answer_model(self, client: Client, request: Request, name: str) -> None:
        model, key = self._by_name.get(name), request.held_key or ANYBODY
        request.asked = name
        if model is None or not key.may_use(model.route.name):
            self._refuse(client, request, no_such_model(name))
            return
        self.books.enter_own(client, request, 200)
        client.reply(200, encode_json(tell_model(model.route)), request)

    def metrics(self) -> bytes:
        """Of all workers, in Prometheus' text format."""
        return render_metrics(self._board, self._places, self._table.models if self._table is not None else ())

    def meeting_of(self, request: Request, model: ServedModel) -> bytes:
        """What a request shares with those that it should meet at one replica."""
        if model.route.affinity is Affinity.NONE or len(model.replicas) < 2:
            return b""
        return affinity_key(request.body, model.route.affinity, request.session)

    def may_wait(self, exchange: Exchange) -> bool:
        settings = self.settings
        return settings.hold_s > 0 and len(exchange.model.waiting) < settings.held_requests and not self.is_stopping

    # What time does.

    async def sweep_for_ever(self) -> None:
        while True:
            await trio.sleep(SWEEP_EVERY_S)
            self.sweep()

    def sweep(self) -> None:
        """Deadlines, clients that take nothing, and connections that are no more."""
        now = self.poller.now = self.poller.clock()
        held = 0
        for flow in [*self.flows]:
            if flow.connection is None:
                self.flows.discard(flow)
            elif flow.deadline <= now:
                flow.expire()
            elif isinstance(flow, Client):
                held += flow.held_bytes
                if flow.kept_bytes and flow.moved_at < now - STUCK_S:
                    flow.close()
        self.held_bytes = held

        while self._paused:
            listener = self._paused.pop()
            if listener.fileno() >= 0:
                self.poller.change(listener, READ)

    def pause(self, listener: socket.socket) -> None:
        """Take no connections there until the next sweep."""
        self.poller.change(listener, 0)
        self._paused.append(listener)

    def clients(self) -> list[Client]:
        return [flow for flow in self.flows if isinstance(flow, Client)]

    @property
    def is_busy(self) -> bool:
        return any(client.is_busy for client in self.clients())

    def begin_stop(self) -> None:
        """Say so to whoever asks for its health, and keep no connection after its answer."""
        self.is_stopping = True
        for model in self._models.values():
            for exchange in [*model.waiting]:
                exchange.waited_in_vain()

    def stop(self) -> None:
        """Connections on which nothing runs are closed, the others after their answer."""
        self.begin_stop()
        for client in self.clients():
            client.stop()


def _judge_path(method: bytes, path: bytes) -> Refusal | None:
    if path in _OWN_PATHS or path.startswith(b"/v1/models/"):
        allowed = method in (b"GET", b"HEAD")
        return None if allowed else Refusal(405, "only GET is understood here", "bad_method", allow="GET, HEAD")
    if not path.startswith(b"/v1/") or b".." in path or b"//" in path or b"%" in path:
        return Refusal(404, "there is nothing at this path; models are served under /v1", "not_found")
    if method != b"POST":
        return Refusal(405, "only POST is passed on to models", "bad_method", allow="POST")
    return None


def _origin_form(target: bytes) -> bytes:
    """Some clients send to a gateway what they would send to a proxy (RFC 9112, 3.2.2)."""
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() not in (b"http", b"https"):
        return target
    return b"/" + rest.partition(b"/")[2]


def _unquote(text: bytes) -> str:
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(text).decode("utf-8", "replace")
