"""Why SGLang cannot run a replica that is valid as such.

In: a replica.  Out: clauses with the numbers.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from llmgw_core.engine import ReplicaSpec
from llmgw_engine_sglang.layout import has_dp_attention


def refusals(replica: ReplicaSpec) -> tuple[str, ...]:
    return (*_wrong_sizes(replica), *_wrong_words(replica))


def _wrong_sizes(replica: ReplicaSpec) -> Iterator[str]:
    parallel, nodes = replica.parallel, replica.nodes
    ranks = parallel.tensor * parallel.pipeline
    if ranks % nodes:
        yield f"tensor {parallel.tensor} x pipeline {parallel.pipeline} = {ranks} does not divide over {nodes} nodes"
    if has_dp_attention(replica) and parallel.tensor % parallel.data:
        yield f"tensor {parallel.tensor} is no multiple of data {parallel.data}, as DP attention needs"
    if parallel.tensor % parallel.expert:
        yield f"tensor {parallel.tensor} is no multiple of expert {parallel.expert}"


def _wrong_words(replica: ReplicaSpec) -> Iterator[str]:
    if ":" in replica.served_name:
        # SGLang 0.5.23 takes what follows a colon for a LoRA's name.
        yield f"SGLang refuses a served name with a colon: {replica.served_name!r}"
    for name in ("source", "served_name"):
        text = getattr(replica, name)
        if text.startswith("-"):
            yield f"its {name.replace('_', ' ')} {text!r} would be read as a flag"
    if replica.api_key and any(arg.partition("=")[0] == "--config" for arg in replica.extra_args):
        # SGLang refuses two --config, and llmgw's holds the key.
        yield "an API key goes by --config, which its extra arguments give too; put the key into that file"
