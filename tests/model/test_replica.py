from typing import Any

import pytest

from llmgw_core.engine import Endpoint, ImpossibleReplica, Parallel, Secret, Settings, Speculative
from llmgw_core.testing.builders import a_replica, a_slot

HEAD = Endpoint("192.0.2.1", 19000)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slots": ()}, "no slot"),
        ({"nodes": 2, "rendezvous": None}, "2 nodes need a rendezvous"),
        (
            {"parallel": Parallel(tensor=3, pipeline=1), "nodes": 2},
            "3 x pipeline 1 x data 1 = 3 does not divide over 2",
        ),
        ({"parallel": Parallel(tensor=16), "gpus": 8}, "tensor 16 x pipeline 1 = 16 exceeds its 8 GPUs"),
        ({"parallel": Parallel(tensor=0)}, "tensor parallel size 0 is below 1"),
        ({"parallel": Parallel(expert=-1)}, "expert parallel size -1 is below 1"),
        ({"slots": (a_slot(0, 8), a_slot(1, 4)), "rendezvous": HEAD}, "different numbers of GPUs: [4, 8]"),
        ({"slots": (a_slot(0, 1), a_slot(0, 1)), "rendezvous": HEAD}, "named twice: GPU-0-0"),
        ({"slots": (a_slot(listen=Endpoint("0.0.0.0", 99999)),)}, "port 99999 is not between 1 and 65535"),
        ({"slots": (a_slot(executable=()),)}, "no executable"),
        ({"source": ""}, "its source is empty"),
        ({"served_name": ""}, "its served name is empty"),
        ({"extra_args": ("--a\0b",)}, "NUL byte"),
        ({"settings": Settings(context_length=0)}, "context length 0 is below 1"),
        ({"settings": Settings(max_sequences=0)}, "most concurrent sequences 0 is below 1"),
        ({"settings": Settings(gpu_memory_fraction=1.5)}, "GPU memory fraction 1.5 is not in (0, 1]"),
        ({"settings": Settings(speculative=Speculative("ngram", 0))}, "draft tokens 0 is below 1"),
    ],
)
def test_what_no_engine_could_run_is_refused_with_the_numbers(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ImpossibleReplica) as refused:
        a_replica(**changes)
    assert said in str(refused.value)
    assert str(refused.value).startswith("replica qwen3/1 is impossible: ")


def test_all_reasons_are_given_at_once() -> None:
    with pytest.raises(ImpossibleReplica) as refused:
        a_replica(nodes=2, rendezvous=None, source="", parallel=Parallel(tensor=3))
    assert len(refused.value.reasons) == 3


def test_a_secret_is_shown_nowhere() -> None:
    replica = a_replica(api_key=Secret("hunter2"))
    assert "hunter2" not in f"{replica} {replica!r}"
    assert replica.api_key is not None
    assert replica.api_key.reveal() == "hunter2"


def test_equal_replicas_are_equal_and_hash_alike_and_cannot_be_changed() -> None:
    one, other = (a_replica(extra_env={"A": "1"}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(TypeError):
        one.extra_env["A"] = "2"  # type: ignore[index]


def test_shards_are_named_after_replica_and_rank() -> None:
    shards = a_replica(nodes=2).shards
    assert [(shard.id, shard.is_head) for shard in shards] == [("qwen3/1#0", True), ("qwen3/1#1", False)]
    assert shards[1].slot.address == "192.0.2.2"


@pytest.mark.parametrize(("address", "said"), [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80")])
def test_endpoints_are_written_as_urls_have_them(address: str, said: str) -> None:
    assert str(Endpoint(address, 80)) == said
