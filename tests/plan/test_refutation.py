"""What proves that a stated fabric is not one, and what proves nothing. Numbers are those of the field cases."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.model.node import IbPort
from llmgw_core.model.replica import Hca
from llmgw_core.plan.refutation import DEFAULT_PREFIX, FabricMember, refuted


def a_member(node: str, *ports: IbPort, fabric: str = "ib-b") -> FabricMember:
    return FabricMember(fabric, node, ports)


def port(lid: int | None = None, name: str = "mlx5_0", **changes: Any) -> IbPort:
    given: dict[str, Any] = {"state": "ACTIVE", "link_layer": "InfiniBand", "subnet_prefix": DEFAULT_PREFIX}
    return IbPort(Hca(name), lid=lid, **{**given, **changes})


def test_one_lid_on_two_nodes_refutes() -> None:
    (found,) = refuted([a_member("node-02", port(0x12)), a_member("node-01", port(0x12)), a_member("node-03", port(7))])
    assert (found.fabric, found.nodes) == ("ib-b", ("node-01", "node-02"))
    assert found.reason == (
        "ib-b is not one fabric: port LID 0x12 is held by node-01's mlx5_0:1 and node-02's mlx5_0:1"
    )


def test_one_lid_on_two_ports_of_a_node_refutes() -> None:
    (found,) = refuted([a_member("node-01", port(5), port(5, "mlx5_1"))])
    assert found.nodes == ("node-01",)


def test_prefixes_that_somebody_set_and_that_differ_refute() -> None:
    members = [a_member(f"node-0{n}", port(n, subnet_prefix=f"fec0:0000:0000:000{n}")) for n in (1, 2)]
    (found,) = refuted(members)
    assert found.nodes == ("node-01", "node-02")
    assert "fec0:0000:0000:0001 (node-01's mlx5_0:1), fec0:0000:0000:0002 (node-02's mlx5_0:1)" in found.reason


def test_d23_equal_and_default_prefixes_prove_nothing() -> None:
    assert refuted([a_member("node-01", port(1)), a_member("node-02", port(2))]) == ()
    set_by_somebody = port(1, subnet_prefix="fec0:0000:0000:0001")
    assert refuted([a_member("node-01", set_by_somebody), a_member("node-02", port(2))]) == ()
    assert refuted([a_member("node-01", set_by_somebody), a_member("node-02", port(2, subnet_prefix=None))]) == ()


def test_no_lid_is_no_proof() -> None:
    assert refuted([a_member("node-01", port(None)), a_member("node-02", port(None))]) == ()
    assert refuted([a_member("node-01", port(0)), a_member("node-02", port(0))]) == ()


def test_equal_lids_of_two_fabrics_prove_nothing() -> None:
    assert refuted([a_member("node-01", port(5)), a_member("node-02", port(5), fabric="ib-a")]) == ()


def test_d01_ethernet_ports_prove_nothing() -> None:
    roce = port(5, link_layer="Ethernet")
    assert refuted([a_member("node-01", roce), a_member("node-02", roce)]) == ()


def test_ports_that_are_down_keep_old_lids() -> None:
    assert refuted([a_member("node-01", port(5, state="DOWN")), a_member("node-02", port(5))]) == ()


def test_d08_no_guid_identifies_nothing_and_one_guid_is_one_port() -> None:
    same = port(5, port_guid="a088:c203:00aa:0001")
    assert refuted([a_member("node-01", same), a_member("node-02", same)]) == ()
    assert len(refuted([a_member("node-01", port(5)), a_member("node-02", port(5))])) == 1


PORTS = st.builds(
    port,
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from(["mlx5_0", "mlx5_1"]),
    subnet_prefix=st.sampled_from([None, DEFAULT_PREFIX, "fec0:0000:0000:0001", "fec0:0000:0000:0002"]),
    port_guid=st.sampled_from([None, "a088:c203:00aa:0001"]),
)
MEMBERS = st.builds(
    FabricMember, st.sampled_from(["ib-a", "ib-b"]), st.sampled_from("xyz"), st.lists(PORTS, max_size=3).map(tuple)
)


@given(st.lists(MEMBERS, max_size=6))
def test_the_order_of_the_members_changes_nothing(members: list[FabricMember]) -> None:
    assert {each.reason for each in refuted(members)} == {each.reason for each in refuted(members[::-1])}
