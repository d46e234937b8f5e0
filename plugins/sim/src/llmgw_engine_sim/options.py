"""The flags of `llmgw-sim`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from llmgw_engine_sim.fault_flags import Faults, add_fault_flags, read_faults
from llmgw_engine_sim.flag_values import address, number, port, whole, whole_from_1


@frozen
class Options:
    model: str
    served_model_name: str
    host: str
    port: int
    nnodes: int
    node_rank: int
    dist_init_addr: tuple[str, int] | None
    context_length: int
    max_sequences: int
    metrics: bool
    load_time: float
    tokens_per_second: float
    join_timeout: float
    faults: Faults


def parse_options(argv: Sequence[str] | None = None) -> Options:
    """Ends the process with 2 and one line on what is wrong."""
    parser = build_parser()
    given = parser.parse_args(argv)
    if given.nnodes > 1 and given.dist_init_addr is None:
        parser.error("--nnodes above 1 needs --dist-init-addr")
    if given.node_rank >= given.nnodes:
        parser.error(f"--node-rank {given.node_rank} is not below --nnodes {given.nnodes}")
    return Options(
        model=given.model,
        served_model_name=given.served_model_name or given.model,
        host=given.host,
        port=given.port,
        nnodes=given.nnodes,
        node_rank=given.node_rank,
        dist_init_addr=given.dist_init_addr if given.nnodes > 1 else None,
        context_length=given.context_length,
        max_sequences=given.max_sequences,
        metrics=given.metrics,
        load_time=given.load_time,
        tokens_per_second=given.tokens_per_second,
        join_timeout=given.join_timeout,
        faults=read_faults(given),
    )


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw-sim",
        description="A simulated inference engine: a real HTTP server that needs neither weights nor a GPU.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    _add_place(parser)
    _add_sizes(parser)
    _add_behaviour(parser)
    add_fault_flags(parser)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("place").add_argument
    add("--model", required=True, help="what would be loaded; any text")
    add("--served-model-name", metavar="NAME", help="what requests call the model (default: as --model)")
    add("--host", default="127.0.0.1", help="address to serve on (default: %(default)s)")
    add("--port", type=port, default=8000, help="port to serve on; 0 is any free one (default: %(default)s)")
    add("--nnodes", type=whole_from_1, default=1, metavar="N", help="processes of this replica (default: 1)")
    add("--node-rank", type=whole, default=0, metavar="RANK", help="which one this is; 0 serves (default: 0)")
    add("--dist-init-addr", type=address, metavar="HOST:PORT", help="where rank 0 waits for the other ranks")


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("sizes").add_argument
    for name in ("tensor", "pipeline", "data", "expert"):
        add(f"--{name}-parallel-size", type=whole_from_1, default=1, metavar="N", help="accepted, without effect")
    add("--context-length", type=whole_from_1, default=4096, metavar="N", help="most tokens of a prompt and its answer")
    add(
        "--max-sequences",
        type=whole_from_1,
        default=256,
        metavar="N",
        help="most requests at the same time; others wait",
    )


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("behaviour").add_argument
    add("--no-metrics", dest="metrics", action="store_false", help="do not serve /metrics")
    add("--load-time", type=number, default=0.0, metavar="SECONDS", help="how long loading takes (default: 0)")
    add("--tokens-per-second", type=number, default=0.0, metavar="N", help="per request; 0 is at once (default: 0)")
    add("--join-timeout", type=number, default=60.0, metavar="SECONDS", help="most to wait for others (default: 60)")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that takes longer than all else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"llmgw-sim {version('llmgw-engine-sim')}")
        parser.exit()
