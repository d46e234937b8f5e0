"""Fabrics as stated, and what a node's ports say to them. Numbers are those of the field cases."""

from contextlib import suppress

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine.nccl import group_env
from llmgw_core.model.node import Fabric, Found, IbPort, IbReport
from llmgw_core.model.replica import Hca
from llmgw_core.plan.fabric import impossible_fabrics, natural, resolve_fabrics
from llmgw_core.plan.fabric_hint import fabric_hint
from llmgw_core.plan.fabric_words import BadFabrics, StatedFabric, StatedHca, parse_fabrics
from llmgw_core.testing.builders import a_replica, a_slot


def up(name: str, port: int = 1) -> IbPort:
    return IbPort(Hca(name, port), state="ACTIVE", link_layer="InfiniBand", lid=port)


def down(name: str, port: int = 1) -> IbPort:
    return evolve(up(name, port), state="DOWN", trouble="DOWN (Polling)")


def roce(name: str) -> IbPort:
    return evolve(up(name), link_layer="Ethernet", lid=None, trouble="Ethernet, not InfiniBand")


def a_report(*ports: IbPort) -> IbReport:
    return IbReport(Found.SOME, ports)


NO_TREE = IbReport(Found.NONE, reason="/sys/class/infiniband does not exist")


def resolved(words: list[str], *ports: IbPort, before: tuple[Fabric, ...] = ()) -> tuple[Fabric, ...]:
    return resolve_fabrics(parse_fabrics(words), a_report(*ports), before)


def one(word: str, *ports: IbPort) -> tuple[str, str]:
    (fabric,) = resolved([word], *ports)
    return " ".join(map(str, fabric.hcas)), fabric.trouble


# the words


@pytest.mark.parametrize(
    ("word", "stated"),
    [
        ("ib-b", StatedFabric("ib-b")),
        ("ib-b:mlx5_2,mlx5_3", StatedFabric("ib-b", (StatedHca("mlx5_2"), StatedHca("mlx5_3")))),
        ("ib-b:mlx4_0:2", StatedFabric("ib-b", (StatedHca("mlx4_0", 2),))),
        ("ib-b:mlx4_0:2, mlx5_bond_0", StatedFabric("ib-b", (StatedHca("mlx4_0", 2), StatedHca("mlx5_bond_0")))),
    ],
)
def test_the_words_of_a_fabric(word: str, stated: StatedFabric) -> None:
    assert parse_fabrics([word]) == (stated,)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([""], "no name of a fabric"),
        ([":mlx5_0"], "no name of a fabric"),
        (["ib b"], "no name of a fabric"),
        (["ib-b:"], "'' is no adapter"),
        (["ib-b:mlx5_0,"], "'' is no adapter"),
        (["ib-b:mlx5_0:x"], "'mlx5_0:x' is no adapter"),
        (["ib-b:mlx5_0:0"], "'mlx5_0:0' is no adapter"),
        (["ib-b:^mlx5_0"], "'^mlx5_0' is no adapter"),
        (["ib-b:mlx5_0,mlx5_0"], "fabric ib-b names mlx5_0 twice"),
        (["ib-b:mlx5_0,mlx5_0:1"], "fabric ib-b names mlx5_0 and mlx5_0:1 twice"),
        (["ib-a:mlx5_0", "ib-a:mlx5_1"], "fabric ib-a is stated twice"),
        (["ib-a:mlx5_0", "ib-b:mlx5_0"], "adapter mlx5_0 is under two fabrics, ib-a and ib-b"),
        (["ib-a:mlx5_0:1", "ib-b:mlx5_0"], "adapter mlx5_0:1 and mlx5_0 is under two fabrics, ib-a and ib-b"),
        (["ib-a", "ib-b"], "ib-a and ib-b leave their adapters to llmgw"),
    ],
)
def test_words_that_cannot_be_followed_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(BadFabrics) as refused:
        parse_fabrics(words)
    (mistake,) = refused.value.mistakes
    assert said in mistake


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(BadFabrics) as refused:
        parse_fabrics(["ib-a:mlx5_0,mlx5_1", "ib-b:mlx5_1,mlx5_2:0", "ib c", "ib-d:mlx5_0"])
    assert len(refused.value.mistakes) == 4
    assert str(refused.value).splitlines() == list(refused.value.mistakes)


def test_two_ports_of_one_adapter_may_be_on_two_fabrics() -> None:
    assert len(parse_fabrics(["ib-a:mlx4_0:1", "ib-b:mlx4_0:2"])) == 2


@given(st.lists(st.text("ib-a:mlx5_0,² \n"), max_size=4))
def test_any_words_are_fabrics_or_refused(words: list[str]) -> None:
    with suppress(BadFabrics):
        assert len(parse_fabrics(words)) == len(words)


@given(st.lists(st.text()))
def test_any_names_have_an_order(names: list[str]) -> None:
    assert {natural(name) for name in sorted(names, key=natural)} == set(map(natural, names))


# what a node's ports say


def test_named_adapters_are_taken_in_the_order_named() -> None:
    assert one("ib-b:mlx5_3,mlx5_2", up("mlx5_2"), up("mlx5_3")) == ("mlx5_3:1 mlx5_2:1", "")


def test_the_default_is_two_adapters_in_natural_order_and_says_which() -> None:
    fabric = resolved(["ib-b"], up("mlx5_10"), up("mlx5_9"), roce("mlx5_0"), down("mlx5_1"), up("mlx5_11"))[0]
    assert fabric == Fabric("ib-b", (Hca("mlx5_9"), Hca("mlx5_10")), picked=True)


def test_the_default_takes_no_port_that_another_fabric_names() -> None:
    ports = (up("mlx4_0", 1), up("mlx4_0", 2), up("mlx5_0"), up("mlx5_1"))
    assert [" ".join(map(str, each.hcas)) for each in resolved(["ib-a", "ib-b:mlx4_0:1,mlx5_0"], *ports)] == [
        "mlx4_0:2 mlx5_1:1",
        "mlx4_0:1 mlx5_0:1",
    ]


def test_two_ports_of_one_adapter_are_not_two_adapters() -> None:
    hcas, trouble = one("ib-b", up("mlx4_0", 1), up("mlx4_0", 2))
    assert hcas == "mlx4_0:1"
    assert "needs 2 adapters with an ACTIVE InfiniBand port and finds 1 (mlx4_0:1)" in trouble


def test_fewer_than_two_is_trouble_with_the_reason_of_the_others() -> None:
    hcas, trouble = one("ib-b", up("mlx5_0"), down("mlx5_1"), roce("mlx5_2"))
    assert hcas == "mlx5_0:1"
    assert trouble.endswith("mlx5_1:1: DOWN (Polling); mlx5_2:1: Ethernet, not InfiniBand")


def test_what_was_picked_stays_picked() -> None:
    before = resolved(["ib-b"], up("mlx5_0"), up("mlx5_1"), up("mlx5_2"))
    (now,) = resolved(["ib-b"], down("mlx5_0"), up("mlx5_1"), up("mlx5_2"), before=before)
    assert now == Fabric("ib-b", (Hca("mlx5_0"), Hca("mlx5_1")), picked=True, trouble="mlx5_0:1: DOWN (Polling)")


def test_a_pick_that_was_not_whole_is_made_again() -> None:
    before = resolved(["ib-b"], down("mlx5_0"), up("mlx5_1"))
    (now,) = resolved(["ib-b"], up("mlx5_0"), up("mlx5_1"), before=before)
    assert (now.hcas, now.trouble) == ((Hca("mlx5_0"), Hca("mlx5_1")), "")


@pytest.mark.parametrize("word", ["ib-b:mlx5_0", "ib-b"])
def test_d01_d02_d15_roce_counts_for_no_fabric(word: str) -> None:
    assert "Ethernet, not InfiniBand" in one(word, roce("mlx5_0"), roce("bnxt_re0"))[1]


def test_d04_a_named_adapter_that_is_down_is_the_fabrics_trouble() -> None:
    assert one("ib-b:mlx5_4,mlx5_5", up("mlx5_4"), down("mlx5_5")) == (
        "mlx5_4:1 mlx5_5:1",
        "mlx5_5:1: DOWN (Polling)",
    )


def test_d06_an_adapter_stands_for_the_one_port_that_is_up() -> None:
    ports = (down("mlx4_0", 1), up("mlx4_0", 2))
    assert one("ib-b:mlx4_0", *ports) == ("mlx4_0:2", "")
    assert one("ib-b:mlx4_0:2", *ports) == ("mlx4_0:2", "")
    assert one("ib-b:mlx4_0:1", *ports) == ("mlx4_0:1", "mlx4_0:1: DOWN (Polling)")


def test_d06_an_adapter_with_two_ports_that_are_up_is_asked_about() -> None:
    hcas, trouble = one("ib-b:mlx4_0", up("mlx4_0", 1), up("mlx4_0", 2))
    assert (hcas, trouble) == ("", "mlx4_0 has 2 ACTIVE ports: name one, mlx4_0:1 or mlx4_0:2")


def test_an_adapter_that_is_not_there_is_told_with_those_that_are() -> None:
    assert one("ib-b:mlx5_1", up("mlx5_10"), up("mlx5_2")) == ("", "mlx5_1 is not there (there are: mlx5_2, mlx5_10)")


def test_d13_a_fabric_on_a_node_without_infiniband_is_refused_at_start() -> None:
    stated = parse_fabrics(["ib-b"])
    (why,) = impossible_fabrics(stated, NO_TREE)
    assert "fabric ib-b is stated, and this node has no InfiniBand: /sys/class/infiniband does not exist" in why
    assert impossible_fabrics((), NO_TREE) == ()
    assert impossible_fabrics(stated, a_report(down("mlx5_0"))) == ()
    assert impossible_fabrics(stated, IbReport(Found.FAILED, reason="Permission denied")) == ()


def test_a_tree_that_goes_away_later_is_trouble() -> None:
    (fabric,) = resolve_fabrics(parse_fabrics(["ib-b:mlx5_0:1"]), NO_TREE)
    assert (fabric.hcas, fabric.trouble) == ((Hca("mlx5_0"),), "/sys/class/infiniband does not exist")


def test_d13_d16_a_node_without_a_stated_fabric_has_none_whatever_its_ports() -> None:
    assert resolved([], up("mlx5_0"), up("mlx5_1")) == ()
    assert resolve_fabrics((), NO_TREE) == ()


# what engines are told, and what they say


def test_d20_d21_every_rank_gets_exactly_its_adapters_and_interface() -> None:
    (fabric,) = resolved(["ib-b:mlx5_1"], up("mlx5_1"), up("mlx5_10"))
    slots = tuple(a_slot(rank, 1, hcas=fabric.hcas, interface="eno1") for rank in range(2))
    for shard in a_replica(2, 1, slots=slots).shards:
        assert group_env(shard) == {
            "NCCL_IB_HCA": "=mlx5_1:1",
            "NCCL_SOCKET_IFNAME": "=eno1",
            "GLOO_SOCKET_IFNAME": "eno1",
        }


@pytest.mark.parametrize(
    ("case", "line", "hint"),
    [
        (
            "D18",
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<49577> "
            "with error 12, opcode 1, len 0, vendor err 129",
            "--fabric",
        ),
        ("D21", "[rank8] Gloo connectFullMesh failed ... remote=[127.0.0.1]:14215", "loopback"),
        ("D25", "NCCL WARN NET/IB : Got async event : port error", "lost its link"),
    ],
)
def test_a_log_that_tells_of_the_fabric_gives_a_hint_with_its_line(case: str, line: str, hint: str) -> None:
    said = fabric_hint(f"INFO loading\n{line}\nRuntimeError: engine died\n")
    assert hint in said, case
    assert line in said


@given(st.text())
def test_other_logs_give_none(log: str) -> None:
    assert fabric_hint(log) == "" or "NET/IB" in log or "Gloo" in log
