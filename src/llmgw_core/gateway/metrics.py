"""What the board counts, for Prometheus. Labels are names of the catalog's models, their replicas and keys: bounded.

The text is written here (format 0.0.4), not by prometheus_client: it is made between two requests, and with 500
replicas the library took 180 ms for it, in which no stream goes on (measured; this takes a tenth).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from llmgw_core.gateway import board as cells
from llmgw_core.gateway.board import Board
from llmgw_core.gateway.place import Places
from llmgw_core.model.route import ModelRoute

KIND = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "llmgw_gateway_"
_OTHER = "other"
"""Who has no place of its own."""
_BOUNDS = (*(f"{bound:g}" for bound in cells.BUCKETS_S), "+Inf")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Numbers = Mapping[str, Sequence[int]]
"""Of each replica, by its labels."""


def render_metrics(board: Board, places: Places, models: Iterable[ModelRoute] = ()) -> bytes:
    found = {name: board.replica(place) for name, place in {_OTHER: 0, **places.replicas}.items()}
    numbers = {_replica_labels(name): each for name, each in found.items() if any(each)}
    lines = [
        *_statuses(numbers),
        *_causes(numbers),
        *_counter("retries_total", "Requests that were tried elsewhere before.", _at(numbers, cells.RETRIED)),
        *_counter("prompt_tokens_total", "Tokens in, as engines report them.", _at(numbers, cells.TOKENS_IN)),
        *_counter("completion_tokens_total", "Tokens out, as engines report them.", _at(numbers, cells.TOKENS_OUT)),
        *_histogram("first_byte_seconds", "From a request's first byte to its answer's.", numbers, cells.FIRST),
        *_histogram("request_seconds", "From a request's first byte to its answer's end.", numbers, cells.TOTAL),
        *_in_flight(board, places),
        *_readiness(tuple(models)),
        *_times(board),
        *_own_answers(board),
        *_uses(board, places),
    ]
    return ("\n".join(lines) + "\n").encode()


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in labels.items())


def _replica_labels(replica: str) -> str:
    return _labels(model=replica.rpartition("/")[0] or replica, replica=replica)


def _family(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {what}"
    yield f"# TYPE {_PREFIX}{name} {kind}"


def _counter(name: str, what: str, samples: Mapping[str, int], kind: str = "counter") -> Iterator[str]:
    yield from _family(name, kind, what)
    for labels, count in samples.items():
        yield f"{_PREFIX}{name}{{{labels}}} {count}"


def _at(numbers: Numbers, cell: int) -> dict[str, int]:
    return {labels: each[cell] for labels, each in numbers.items()}


def _statuses(numbers: Numbers) -> Iterator[str]:
    samples = {
        f'{labels},status="{hundred + 1}xx"': each[cells.STATUS + hundred]
        for labels, each in numbers.items()
        for hundred in range(cells.STATUS_CELLS)
        if each[cells.STATUS + hundred]
    }
    return _counter("requests_total", "Answers.", samples)


def _causes(numbers: Numbers) -> Iterator[str]:
    samples = {
        f'cause="{cause}",{labels}': each[cells.CAUSE + at]
        for labels, each in numbers.items()
        for at, cause in enumerate(cells.CAUSES)
        if each[cells.CAUSE + at]
    }
    return _counter("errors_total", "Requests that got no whole answer from a replica.", samples)


def _histogram(name: str, what: str, numbers: Numbers, begin: int) -> Iterator[str]:
    yield from _family(name, "histogram", what)
    for labels, each in numbers.items():
        count = 0
        for at, bound in enumerate(_BOUNDS, begin):
            count += each[at]
            yield f'{_PREFIX}{name}_bucket{{le="{bound}",{labels}}} {count}'
        yield f"{_PREFIX}{name}_sum{{{labels}}} {each[begin + cells.HISTOGRAM_CELLS - 1] / 1e6}"
        yield f"{_PREFIX}{name}_count{{{labels}}} {count}"


def _in_flight(board: Board, places: Places) -> Iterator[str]:
    sums: dict[str, int] = {}
    for attempt, place in places.attempts.items():
        labels = _replica_labels(attempt.rpartition("@")[0])
        sums[labels] = sums.get(labels, 0) + board.in_flight(place)
    others = board.in_flight(0)
    return _counter(
        "in_flight", "Requests at a replica now.", sums | ({_replica_labels(_OTHER): others} if others else {}), "gauge"
    )


def _readiness(models: Sequence[ModelRoute]) -> Iterator[str]:
    ready = {_labels(model=model.name): len(model.targets) for model in models}
    wanted = {_labels(model=model.name): len(model.targets) + len(model.absent) for model in models}
    yield from _counter("replicas_ready", "Replicas that take requests.", ready, "gauge")
    yield from _counter("replicas_wanted", "Replicas that the catalog wants.", wanted, "gauge")


def _times(board: Board) -> Iterator[str]:
    times = {
        "control_plane_heard_timestamp_seconds": ("When the control plane was last heard.", board.heard_at),
        "routes_timestamp_seconds": ("Of the table by which all workers route.", min(board.versions()) / 1000),
    }
    for name, (what, at) in times.items():
        yield from _family(name, "gauge", what)
        if at:
            yield f"{_PREFIX}{name} {at}"


def _own_answers(board: Board) -> Iterator[str]:
    samples = {_labels(status=str(status)): count for status, count in board.own().items()}
    return _counter("own_answers_total", "Answers that no replica gave.", samples)


def _uses(board: Board, places: Places) -> Iterator[str]:
    keys = {place: name for name, place in places.keys.items()} | {0: ""}
    models = {place: name for name, place in places.models.items()}
    uses = {
        _labels(key=keys.get(key, _OTHER), model=models.get(model, _OTHER)): counts
        for (key, model), counts in board.uses().items()
    }
    names = ("key_requests_total", "key_prompt_tokens_total", "key_completion_tokens_total")
    whats = ("Requests of a key and model.", "Tokens in, of a key and model.", "Tokens out, of a key and model.")
    for at, (name, what) in enumerate(zip(names, whats, strict=True)):
        yield from _counter(name, what, {labels: counts[at] for labels, counts in uses.items()})
