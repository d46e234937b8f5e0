"""Trees of /sys/class/infiniband of real machines, written to disk and read. Numbers are those of the field cases."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.discovery.ib_port import ADAPTER_FILES, PORT_FILES, read_port
from llmgw_core.discovery.infiniband import read_tree
from llmgw_core.model.node import Found, IbPort
from llmgw_core.model.replica import Hca
from llmgw_core.testing.fake_infiniband import UNREADABLE, a_port, an_adapter, write_tree

ROCE = {
    "state": "4: ACTIVE\n",
    "phys_state": "5: LinkUp\n",
    "rate": "100 Gb/sec (4X EDR)\n",
    "link_layer": "Ethernet\n",
    "lid": "0x0",
    "sm_lid": "0x0",
}


def port_of(tmp_path: Path, files: dict[str, Any], name: str = "mlx5_0") -> IbPort:
    report = read_tree(write_tree(tmp_path, {name: an_adapter(ports={"1": files})}))
    assert report.outcome is Found.SOME
    (port,) = report.ports
    return port


def test_an_active_infiniband_port_is_read_in_full(tmp_path: Path) -> None:
    assert port_of(tmp_path, a_port(26, gid="fec0:0000:0000:0007:a088:c203:00AA:001a\n")) == IbPort(
        hca=Hca("mlx5_0", 1),
        state="ACTIVE",
        physical_state="LinkUp",
        link_layer="InfiniBand",
        rate="400 Gb/sec (4X NDR)",
        lid=0x1A,
        node_guid="a088:c203:00aa:0001",
        port_guid="a088:c203:00aa:001a",
        subnet_prefix="fec0:0000:0000:0007",
    )


def test_d01_roce_is_not_infiniband_whatever_its_rate_says(tmp_path: Path) -> None:
    port = port_of(tmp_path, {**ROCE, "gids/0": "fe80:0000:0000:0000:8ae9:a4ff:fe00:0001\n"})
    assert (port.usable, port.trouble) == (False, "Ethernet, not InfiniBand")
    assert (port.lid, port.subnet_prefix, port.state) == (None, "fe80:0000:0000:0000", "ACTIVE")


def test_d02_bonded_devices_keep_their_names_and_the_link_layer_decides(tmp_path: Path) -> None:
    bond = {"ports": {"1": {**ROCE, "rate": "200 Gb/sec (2X NDR)\n"}}}
    report = read_tree(write_tree(tmp_path, {f"mlx5_bond_{n}": bond for n in range(4)}))
    assert [str(port.hca) for port in report.ports] == [f"mlx5_bond_{n}:1" for n in range(4)]
    assert not any(port.usable for port in report.ports)


def test_d04_a_port_that_is_down_says_so(tmp_path: Path) -> None:
    files = {
        "state": "1: DOWN\n",
        "phys_state": "2: Polling\n",
        "rate": "10 Gb/sec (4X SDR)\n",
        "link_layer": "InfiniBand\n",
        "gids/0": "fe80:0000:0000:0000:0000:0000:0000:0000\n",
    }
    port = port_of(tmp_path, files, "mlx5_5")
    assert (port.trouble, port.port_guid, port.lid) == ("DOWN (Polling)", None, None)


def test_d06_both_ports_of_an_adapter_are_read(tmp_path: Path) -> None:
    down = a_port(1, state="1: DOWN\n", phys_state="3: Disabled\n", rate="10 Gb/sec (4X SDR)\n", lid="0x0\n")
    report = read_tree(write_tree(tmp_path, {"mlx4_0": an_adapter(ports={"1": down, "2": a_port(2)})}))
    assert [(str(port.hca), port.state, port.usable) for port in report.ports] == [
        ("mlx4_0:1", "DOWN", False),
        ("mlx4_0:2", "ACTIVE", True),
    ]


def test_d08_a_guid_of_zeros_is_none(tmp_path: Path) -> None:
    virtual = {f"mlx5_{n}": an_adapter(n, node_guid="0000:0000:0000:0000\n") for n in (2, 3)}
    real = {f"mlx5_{n}": an_adapter(n, node_guid=f"aaaa:bb03:0028:000{n}\n") for n in (0, 1)}
    ports = read_tree(write_tree(tmp_path, {**virtual, **real})).ports
    assert [port.node_guid for port in ports] == ["aaaa:bb03:0028:0000", "aaaa:bb03:0028:0001", None, None]
    assert [port.usable for port in ports] == [True, True, False, False]
    assert "no GUID" in ports[2].trouble


def test_d10_missing_files_are_tolerated(tmp_path: Path) -> None:
    files = {"state": "4: ACTIVE\n", "phys_state": "5: LinkUp\n", "link_layer": "Ethernet\n"}
    port = port_of(tmp_path, files, "bnxt_re0")
    assert (port.state, port.rate, port.lid, port.port_guid) == ("ACTIVE", None, None, None)


def test_d12_words_in_the_place_of_a_number_are_unknown(tmp_path: Path) -> None:
    port = port_of(tmp_path, a_port(lid="N/A (no PMA)\n"))
    assert (port.lid, port.usable) == (None, True)


def test_d13_no_tree_is_none(tmp_path: Path) -> None:
    report = read_tree(tmp_path / "infiniband")
    assert (report.outcome, report.ports) == (Found.NONE, ())
    assert "does not exist" in report.reason


def test_an_empty_tree_is_none(tmp_path: Path) -> None:
    assert read_tree(tmp_path).outcome is Found.NONE


def test_a_tree_that_cannot_be_read_has_failed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = read_tree(tmp_path / "file")
    assert (report.outcome, report.reason) == (Found.FAILED, f"{tmp_path}/file cannot be read: Not a directory")


def test_d23_an_empty_slot_has_no_prefix(tmp_path: Path) -> None:
    port = port_of(tmp_path, a_port(gid="0000:0000:0000:0000:0000:0000:0000:0000\n"))
    assert (port.subnet_prefix, port.port_guid) == (None, None)


@pytest.mark.parametrize("name", ["state", "phys_state", "link_layer", "rate", "lid", "gid"])
def test_a_file_that_cannot_be_read_makes_its_fields_unknown_and_no_other(tmp_path: Path, name: str) -> None:
    whole = port_of(tmp_path / "whole", a_port())
    changes: dict[str, Any] = {name: UNREADABLE}
    port = port_of(tmp_path / "lacking", a_port(**changes))
    unknown = {
        "phys_state": {"physical_state"},
        "gid": {"port_guid", "subnet_prefix"},
        "state": {"state", "trouble"},
        "link_layer": {"link_layer", "trouble"},
    }.get(name, {name})
    lacking = attrs.asdict(port)
    assert {field for field, value in attrs.asdict(whole).items() if lacking[field] != value} == unknown


def test_an_unreadable_guid_is_unknown_and_no_trouble(tmp_path: Path) -> None:
    (port,) = read_tree(write_tree(tmp_path, {"mlx5_0": an_adapter(node_guid=UNREADABLE)})).ports
    assert (port.node_guid, port.usable) == (None, True)


def test_an_adapter_without_ports_stays_in_the_report(tmp_path: Path) -> None:
    write_tree(tmp_path, {"mlx5_0": an_adapter(), "mlx5_1": {"node_guid": "1:2:3:4"}, "mlx5_2": {"ports": {}}})
    assert [(str(port.hca), port.usable) for port in read_tree(tmp_path).ports] == [
        ("mlx5_0:1", True),
        ("mlx5_1:1", False),
        ("mlx5_2:1", False),
    ]


def test_adapters_come_as_people_count(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"mlx5_{n}": an_adapter(n) for n in (10, 2, 1)})
    assert [port.hca.name for port in read_tree(tmp_path).ports] == ["mlx5_1", "mlx5_2", "mlx5_10"]


@given(
    st.dictionaries(
        st.sampled_from([*PORT_FILES, *ADAPTER_FILES]),
        st.one_of(st.none(), st.text(), st.from_regex(r"\A[0-9]: [A-Z]*\n\Z"), st.from_regex(r"\A0x[0-9a-f]{1,9}\Z")),
    )
)
def test_any_text_gives_a_port(texts: dict[str, str | None]) -> None:
    port = read_port(Hca("mlx5_0"), texts)
    assert port.lid != 0
    assert port.usable == (port.state == "ACTIVE" and port.link_layer == "InfiniBand" and "GUID" not in port.trouble)
