"""What the board counts, for Prometheus. Labels are names of the catalog's models, their replicas and keys: bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from llmgw_core.gateway import board as cells
from llmgw_core.gateway.board import Board
from llmgw_core.gateway.place import Places

_OTHER = "other"
"""Who has no place of its own."""
_LABELS = ["model", "replica"]


def render_metrics(board: Board, places: Places) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(board, places))
    return generate_latest(registry)


class _Counts(Collector):
    def __init__(self, board: Board, places: Places) -> None:
        self._board = board
        self._places = places

    def collect(self) -> Iterable[Metric]:
        replicas = {name: self._board.replica(place) for name, place in _named(self._places.replicas).items()}
        used = {name: numbers for name, numbers in replicas.items() if any(numbers)}
        yield from _replica_counters(used)
        yield _histogram("first_byte_seconds", "From a request's first byte to its answer's.", used, cells.FIRST)
        yield _histogram("request_seconds", "From a request's first byte to its answer's end.", used, cells.TOTAL)
        yield self._in_flight()
        own = CounterMetricFamily("llmgw_gateway_own_answers", "Answers that no replica gave.", labels=["status"])
        for status, count in self._board.own().items():
            own.add_metric([str(status)], count)
        yield own
        yield from self._uses()

    def _in_flight(self) -> Metric:
        metric = GaugeMetricFamily("llmgw_gateway_in_flight", "Requests at a replica now.", labels=_LABELS)
        sums: dict[str, int] = {}
        for attempt, place in _named(self._places.attempts).items():
            replica = attempt.rpartition("@")[0] or attempt
            sums[replica] = sums.get(replica, 0) + self._board.in_flight(place)
        for replica, count in sums.items():
            metric.add_metric(_labels(replica), count)
        return metric

    def _uses(self) -> Iterable[Metric]:
        keys, models = _by_place(self._places.keys), _by_place(self._places.models)
        names = {"requests": "Requests", "prompt_tokens": "Tokens in", "completion_tokens": "Tokens out"}
        families = [
            CounterMetricFamily(f"llmgw_gateway_key_{name}", f"{what}, of a key and model.", labels=["key", "model"])
            for name, what in names.items()
        ]
        for (key, model), counts in self._board.uses().items():
            labels = [keys.get(key, "" if key == 0 else _OTHER), models.get(model, _OTHER)]
            for family, count in zip(families, counts, strict=True):
                family.add_metric(labels, count)
        return families


def _named(places: Mapping[str, int]) -> dict[str, int]:
    return {_OTHER: 0, **places}


def _by_place(places: Mapping[str, int]) -> dict[int, str]:
    return {place: name for name, place in places.items()}


def _labels(replica: str) -> list[str]:
    return [replica.rpartition("/")[0] or replica, replica]


def _replica_counters(replicas: Mapping[str, Sequence[int]]) -> Iterable[Metric]:
    requests = CounterMetricFamily("llmgw_gateway_requests", "Requests answered.", labels=[*_LABELS, "status"])
    errors = CounterMetricFamily("llmgw_gateway_errors", "Requests not answered whole.", labels=[*_LABELS, "cause"])
    retries = CounterMetricFamily("llmgw_gateway_retries", "Requests tried elsewhere before.", labels=_LABELS)
    tokens_in = CounterMetricFamily("llmgw_gateway_prompt_tokens", "As engines report them.", labels=_LABELS)
    tokens_out = CounterMetricFamily("llmgw_gateway_completion_tokens", "As engines report them.", labels=_LABELS)
    for name, numbers in replicas.items():
        labels = _labels(name)
        for each in range(cells.STATUS_CELLS):
            if numbers[cells.STATUS + each]:
                requests.add_metric([*labels, f"{each + 1}xx"], numbers[cells.STATUS + each])
        for each, cause in enumerate(cells.CAUSES):
            if numbers[cells.CAUSE + each]:
                errors.add_metric([*labels, cause], numbers[cells.CAUSE + each])
        retries.add_metric(labels, numbers[cells.RETRIED])
        tokens_in.add_metric(labels, numbers[cells.TOKENS_IN])
        tokens_out.add_metric(labels, numbers[cells.TOKENS_OUT])
    return requests, errors, retries, tokens_in, tokens_out


def _histogram(name: str, what: str, replicas: Mapping[str, Sequence[int]], begin: int) -> Metric:
    family = HistogramMetricFamily(f"llmgw_gateway_{name}", what, labels=_LABELS)
    for replica, numbers in replicas.items():
        counts, total = numbers[begin : begin + len(cells.BUCKETS_S) + 1], 0
        buckets = []
        for bound, count in zip((*map(str, cells.BUCKETS_S), "+Inf"), counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric(_labels(replica), buckets, numbers[begin + cells.HISTOGRAM_CELLS - 1] / 1e6)
    return family
