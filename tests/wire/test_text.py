"""Messages as text: each comes back as it went, and whatever else arrives is garbage, in one short line."""

import json
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.model.catalog import HealthTimings, Profile, Sidecar
from llmgw_core.model.launch import Launch, Offer, Place, RunShard, Stage, StopShard
from llmgw_core.model.node import EngineFound, Fabric, Found, Gpu, GpuReport, IbPort, IbReport, NodeFacts
from llmgw_core.model.replica import Hca, Speculative
from llmgw_core.model.route import Absent, Affinity, Lingering, ModelRoute, RouteTable, Target, UserKey
from llmgw_core.model.shard import ShardFailure, ShardPhase, ShardStatus
from llmgw_core.wire.message import (
    Acknowledged,
    Answer,
    Ask,
    CertificateRenewed,
    CheckEngine,
    EngineChecked,
    Failed,
    Heartbeat,
    HeartbeatSeen,
    Hello,
    Leaving,
    LogRead,
    Message,
    Offers,
    Ordered,
    ReadLog,
    Refused,
    RenewCertificate,
    Report,
    Routes,
    RoutesTaken,
    Running,
    Unknown,
    Welcome,
)
from llmgw_core.wire.text import Garbage, decode, encode

FACTS = NodeFacts(
    agent_version="1",
    gpus=GpuReport(Found.SOME, (Gpu(0, "GPU-1", "H100", memory_total_mib=81559, mig=False), Gpu(None, "GPU-2"))),
    infiniband=IbReport(Found.SOME, (IbPort(Hca("mlx5_2"), "ACTIVE", lid=7), IbPort(Hca("mlx5_3", 2)))),
    fabrics=(Fabric("ib-b", (Hca("mlx5_2"), Hca("mlx5_3", 2)), picked=True, trouble="é"),),
    engines=(EngineFound("vllm", "/opt/vllm", "0.32.0", "ab" * 32, "accepted"),),
    machine_id="m",
    disk_free_mib=1024,
    refused_plugins=("x refused: why",),
)
PROFILE = Profile(
    engine="vllm",
    nodes=2,
    gpus_per_node=1,
    tensor_parallel=2,
    env={"A": "é"},
    speculative=Speculative("ngram", 4),
    sidecars={"cache": Sidecar(command=("cache", "{port}"), env={"B": "c"})},
    health=HealthTimings(misses=4),
)
OFFER = Offer("key", "qwen3", "/models/qwen3", "big", PROFILE)
PLACES = (
    Place("gpu1", "192.0.2.1", 18000, ("GPU-1",), (Hca("mlx5_2"),), "ib0"),
    Place("gpu2", "192.0.2.2", 18001, ("GPU-2",), (Hca("mlx5_3", 2),)),
)
LAUNCH = Launch("qwen3/1", 3, OFFER, PLACES, 19000)
FAILURE = ShardFailure("crashed", "it crashed", "exit code 1", "last\nwords", 1.5)
EACH: list[Message] = [
    Hello(1, "gpu1", "0.1.0", "i1"),
    Hello(1, "gpu1"),
    Welcome(1, 5.0, 7),
    Welcome(1, 20),
    Refused("it is\nnot heard"),
    Report(1, FACTS),
    Acknowledged(1),
    Heartbeat(1),
    HeartbeatSeen(2**63 - 1),
    CheckEngine(1, "vllm"),
    EngineChecked(1, {"outcome": "accepted", "flags": [{"flag": "--x"}], "deep": {"a": [None, 1.5]}}),
    EngineChecked(1, reason="no such engine"),
    Offers((OFFER,)),
    Offers(()),
    Ordered(1, RunShard(LAUNCH, 1, Stage.RUN)),
    Ordered(2, StopShard("qwen3/1", 3, 1, in_flight_s=120.0)),
    Running(0, ()),
    Running(
        2, (ShardStatus("qwen3/1", 3, 1, ShardPhase.STOPPING, "it ends", FAILURE, ("GPU-1",), 18000, 4711, ("x",)),)
    ),
    ReadLog(1, "qwen3/1", 1, cursor="3:1:7"),
    LogRead(1, "é\n", "3:1:9", 3),
    Routes(
        RouteTable(
            7,
            (
                ModelRoute(
                    "Qwen/Qwen3 8B",
                    1_700_000_000,
                    ("gpt-4",),
                    Affinity.SESSION,
                    32768,
                    (Target("Qwen/Qwen3 8B/1", 3, "10.0.0.1", 18000, "k3y"),),
                    (Absent("Qwen/Qwen3 8B/2", "starting", "loading", 1_700_000_000.5),),
                ),
            ),
            (UserKey("1a2b3c4d", "00" * 32, "team é", 1.5, ("Qwen/Qwen3 8B",), 60, 4),),
        )
    ),
    Leaving(),
    RoutesTaken(7, (Lingering("Qwen/Qwen3 8B/1", 2, 1),)),
    RenewCertificate("-----BEGIN"),
    CertificateRenewed("-----BEGIN"),
    CertificateRenewed(reason="no authority"),
    Ask(1, "nodes", {}),
    Ask(1, "revoke", {"name": "gpu1", "after": 0, "x": None}),
    Answer(1, [{"name": "gpu1"}]),
    Answer(1, None),
    Failed(1, "no"),
]


def test_there_is_one_of_each_kind() -> None:
    assert {type(message) for message in EACH} == set(get_args(Message))


@pytest.mark.parametrize("message", EACH, ids=lambda message: type(message).__name__)
def test_each_comes_back(message: Message) -> None:
    text = encode(message)
    assert text.isascii()
    assert "\n" not in text
    assert decode(text) == message


@pytest.mark.parametrize("message", EACH, ids=lambda message: type(message).__name__)
def test_unknown_fields_are_passed_over(message: Message) -> None:
    assert decode(json.dumps({**json.loads(encode(message)), "new": {"in": ["a", "later", "release"]}})) == message


def test_unknown_fields_of_facts_are_passed_over() -> None:
    plain = json.loads(encode(Report(1, FACTS)))
    plain["facts"]["gpus"]["gpus"][0]["new"] = 1
    plain["facts"]["new"] = 1
    assert decode(json.dumps(plain)) == Report(1, FACTS)


@pytest.mark.parametrize("kind", ["Sing", "", "Message", "Unknown", "hello", "x" * 1000])
def test_an_unknown_kind_is_unknown_and_short(kind: str) -> None:
    assert decode(json.dumps({"kind": kind, "number": 1})) == Unknown(kind[:80])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "null",
        "1",
        "[]",
        "{}",
        '{"kind":null}',
        '{"kind":1}',
        '{"kind":["Hello"]}',
        '{"kind":{}}',
        '{"kind":"Hello"',
        '{"kind":"Heartbeat"}',
        '{"kind":"Heartbeat","number":"1"}',
        '{"kind":"Heartbeat","number":1.0}',
        '{"kind":"Heartbeat","number":true}',
        '{"kind":"Heartbeat","number":null}',
        '{"kind":"Heartbeat","number":[1]}',
        '{"kind":"Heartbeat","number":NaN}',
        '{"kind":"Heartbeat","number":1e999}',
        '{"kind":"Heartbeat","number":9223372036854775808}',
        '{"kind":"Heartbeat","number":' + "9" * 5000 + "}",
        '{"kind":"Welcome","protocol":1,"heartbeat_s":Infinity}',
        '{"kind":"Welcome","protocol":1,"heartbeat_s":"5"}',
        '{"kind":"Hello","protocol":1,"name":7}',
        '{"kind":"Hello","protocol":1,"name":"\\ud800"}',
        '{"kind":"Hello","protocol":1,"name":"a","x":"\\ud800"}',
        '{"kind":"Ask","id":1,"what":"nodes","arguments":[]}',
        '{"kind":"Ask","id":1,"what":"nodes","arguments":{"\\udfff":1}}',
        '{"kind":"Ask","id":1,"what":"nodes","arguments":{"after":99999999999999999999}}',
        '{"kind":"EngineChecked","id":1,"report":[]}',
        '{"kind":"Report","number":1,"facts":null}',
        '{"kind":"Report","number":1,"facts":{"agent_version":"1"}}',
        '{"kind":"Report","number":1,"facts":{"agent_version":"1","gpus":{"outcome":"many"},"infiniband":{}}}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"kind":"Answer","id":1,"value":' + "[" * 100_000,
        '{"kind":"Report","number":1,"facts":' + "[" * 900 + "]" * 900 + "}",
        '{"kind":"Report","number":1,"facts":{"gpus":' + "[" * 900 + "]" * 900 + "}}",
        "\ufeff{}",
        "x" * 1_000_000,
        '{"kind":"Heartbeat","number":"' + "x" * 1_000_000 + '"}',
    ],
    ids=lambda text: repr(text[:60]),
)
def test_whatever_else_is_garbage_in_one_short_line(text: str) -> None:
    with pytest.raises(Garbage) as caught:
        decode(text)
    said = str(caught.value)
    assert said
    assert len(said) < 250
    assert len(said.splitlines()) == 1


def test_bytes_are_garbage() -> None:
    with pytest.raises(Garbage, match="2 bytes that are no text message"):
        decode(b"{}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
FIELDS = sorted({field.name for kind in get_args(Message) for field in attrs.fields(kind)})
KINDS = [kind.__name__ for kind in get_args(Message)]


def understood(text: str) -> Any:
    try:
        return decode(text)
    except Garbage:
        return None


@given(st.text())
def test_any_text_is_a_message_or_garbage(text: str) -> None:
    understood(text)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5))
def test_any_fields_are_a_message_that_comes_back_or_garbage(kind: str, fields: dict[str, Any]) -> None:
    message = understood(json.dumps({**fields, "kind": kind}))
    if message is not None:
        assert decode(encode(message)) == message


@given(st.sampled_from(EACH), st.data())
def test_a_message_with_one_value_replaced_is_a_message_or_garbage(message: Message, data: st.DataObject) -> None:
    plain = json.loads(encode(message))
    plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(JSON)
    understood(json.dumps(plain))


@given(st.sampled_from(EACH), st.integers(0, 400))
def test_a_cut_message_is_garbage(message: Message, length: int) -> None:
    text = encode(message)
    if length < len(text):
        with pytest.raises(Garbage):
            decode(text[:length])


def test_a_file_name_that_is_no_utf_8_does_not_keep_its_node_out() -> None:
    facts = attrs.evolve(FACTS, machine_id=b"m\xff".decode("utf-8", "surrogateescape"))
    assert decode(encode(Report(1, facts))) == Report(1, attrs.evolve(FACTS, machine_id="m?"))


def test_a_text_that_speaks_of_escapes_is_left_alone() -> None:
    for said in ("\\ud800", "😀", 'C:\\udir "x"'):
        assert decode(encode(Refused(said))) == Refused(said)


def test_a_value_that_is_too_deep_to_be_passed_on_is_garbage() -> None:
    for depth in (100, 500, 2000, 100_000):
        deep = '{"a":' * depth + "1" + "}" * depth
        with pytest.raises(Garbage):
            decode('{"kind":"EngineChecked","id":1,"report":' + deep + "}")
        with pytest.raises(Garbage):
            decode('{"kind":"Ask","id":1,"what":"nodes","arguments":' + deep + "}")
