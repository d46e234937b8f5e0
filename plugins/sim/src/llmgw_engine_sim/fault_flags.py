"""The flags `--fault-…`: what may be told to go wrong.

Rules: a fault strikes in every process of a replica unless `--fault-rank` names one; with `--fault-once` only until the
file is there, so that the next start goes well.
"""

from __future__ import annotations

import argparse

from attrs import fields_dict, frozen

from llmgw_engine_sim.flag_values import number, whole, whole_from_1


@frozen
class Faults:
    """The flags, by name; `None` and `False`: not asked for."""

    crash_while_loading: float | None = None
    crash_after_ready: float | None = None
    crash_after_requests: int | None = None
    hang_after_ready: float | None = None
    hang_after_requests: int | None = None
    unready_after_ready: float | None = None
    unready_for: float | None = None
    exit_zero: float | None = None
    ignore_sigterm: bool = False
    slow_stop: float | None = None
    orphan: str | None = None
    refuse_port: bool = False
    hold_loading: str | None = None
    hold_health: str | None = None
    hold_tokens: str | None = None
    hold_stop: str | None = None
    die_silently: float | None = None
    rank: int | None = None
    once: str | None = None


_SECONDS: dict[str, str] = {
    "crash-while-loading": "end with 1 so long after loading began, which lasts that long",
    "crash-after-ready": "end with 1 so long after it was ready",
    "exit-zero": "end with 0 so long after it was ready, though nobody asked",
    "hang-after-ready": "requests get no more tokens; /health stays 200",
    "unready-after-ready": "/health answers 503 again",
    "unready-for": "and so long after that, 200 (default: never)",
    "slow-stop": "end so much later than asked",
    "die-silently": "a worker ends with 0 and no word; rank 0 does not notice it, and requests hang",
}
_REQUESTS = {
    "crash-after-requests": "end with 1 when N requests have been answered",
    "hang-after-requests": "hang when N requests have been answered",
}
_FILES = {
    "orphan": "leave a child, in a session of its own, that ignores SIGTERM and keeps FILE locked; "
    "while another process holds FILE, refuse to start",
    "hold-loading": "loading lasts as long as FILE exists, too",
    "hold-health": "/health answers 503 as long as FILE exists",
    "hold-tokens": "requests get no more tokens as long as FILE exists",
    "hold-stop": "when asked to end, do not as long as FILE exists",
    "once": "no fault strikes when FILE exists, and the first that does creates it",
}
_SWITCHES = {"ignore-sigterm": "go on as if it had not come", "refuse-port": "never listen on --port"}


def add_fault_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faults", "what goes wrong; a worker is ready when it has joined and loaded")
    for name, help in _SECONDS.items():
        group.add_argument(f"--fault-{name}", type=number, metavar="SECONDS", help=help)
    for name, help in _REQUESTS.items():
        group.add_argument(f"--fault-{name}", type=whole_from_1, metavar="N", help=help)
    for name, help in _SWITCHES.items():
        group.add_argument(f"--fault-{name}", action="store_true", help=help)
    for name, help in _FILES.items():
        group.add_argument(f"--fault-{name}", metavar="FILE", help=help)
    group.add_argument("--fault-rank", type=whole, metavar="RANK", help="only in the process of this rank")


def read_faults(given: argparse.Namespace) -> Faults:
    return Faults(**{name: getattr(given, f"fault_{name}") for name in fields_dict(Faults)})
