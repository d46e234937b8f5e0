"""What speaks against a machine: all of it at once, each with the way out."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from llmgw_core.provision.checks import choose, find_notes, find_problems
from llmgw_core.provision.facts import MARK, UNFINISHED, AuthorizedKeys, Facts, Guest, Image, PciDevice, Storage
from llmgw_core.provision.reading import read_keys
from llmgw_core.provision.request import MachineRequest

GIB = 1 << 30
LOCAL = Storage("local", "dir", ("iso", "vztmpl", "backup", "snippets"), available_bytes=80 * GIB)
LVM = Storage("local-lvm", "lvmthin", ("rootdir", "images"), available_bytes=800 * GIB)
H100 = PciDevice("0000:41:00.0", "NVIDIA H100", 12)


def request(**changes: Any) -> MachineRequest:
    told = {"vmid": 144, "name": "llmgw-node04", "address": "10.0.0.144/24", "image": "/var/lib/vz/noble.img"}
    return MachineRequest(**{**told, **changes})


def facts(**changes: Any) -> Facts:
    told: dict[str, Any] = {
        "image": Image("", int(3.5 * GIB), "aa" * 32, "aa" * 32, "SHA256SUMS"),
        "keys": AuthorizedKeys("/root/.ssh/authorized_keys", ("ssh-ed25519 AAAA",)),
        "node": "pve",
        "version": (8, 2, 4),
        "quorate": True,
        "guests": (),
        "storages": (LOCAL, LVM),
        "bridges": frozenset({"vmbr0"}),
        "pci": (H100,),
        "gateways": ("10.0.0.1",),
    }
    return Facts(**{**told, **changes})


def guest(vmid: int = 101, kind: str = "qemu", node: str = "pve", name: str = "other", **config: str) -> Guest:
    return Guest(vmid, kind, node, name, config)


def only(found: tuple[str, ...]) -> str:
    (problem,) = found
    assert "\n" not in problem
    return problem


def test_nothing_speaks_against_a_machine_that_has_room() -> None:
    assert find_problems(request(), facts()) == ()
    assert find_notes(request(), facts()) == ()


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(guest(144, "qemu", "pve2", "old"), id="F30: on another member, where qm here knows nothing"),
        pytest.param(guest(144, "lxc", "pve", "old"), id="F30: a container"),
        pytest.param(guest(144, "qemu", "pve", "llmgw-node04"), id="even one of that very name"),
    ],
)
def test_f30_an_id_that_exists_anywhere_is_refused(taken: Guest) -> None:
    problem = only(find_problems(request(), facts(guests=(taken,))))
    assert problem.startswith("--vmid 144 is taken by ")
    assert taken.shown in problem
    assert "nextid" in problem


def test_what_a_killed_run_left_is_refused_with_the_command_that_removes_it() -> None:
    left = guest(144, name="llmgw-node04", description=f"{MARK}, {UNFINISHED} (0123)")
    problem = only(find_problems(request(), facts(guests=(left,))))
    assert "is unfinished: another run of this command makes it now, or one was killed" in problem
    assert "if none runs on pve, remove it there by `qm stop 144 && qm destroy 144 --purge 1`" in problem


PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "id out of range": ({"vmid": 99}, {}, "--vmid 99: Proxmox takes 100 to 999999999"),
    "no node id": ({"name": "Node_04"}, {}, "--name 'Node_04' cannot be a name of a node"),
    "name in use": ({}, {"guests": (guest(name="llmgw-node04"),)}, "is used by VM 101 (llmgw-node04) on pve"),
    "name in use, qualified": ({}, {"guests": (guest(name="llmgw-node04.lab"),)}, "is used by VM 101"),
    "name in use by a container": ({}, {"guests": (guest(kind="lxc", name="llmgw-node04"),)}, "is used by CT 101"),
    "no prefix": ({"address": "10.0.0.144"}, {}, "--ip '10.0.0.144': expected an address with its network's prefix"),
    "no address": ({"address": "10.0.0.999/24"}, {}, "--ip '10.0.0.999/24': expected"),
    "the network itself": ({"address": "10.0.0.0/24"}, {}, "the network's own, or its broadcast"),
    "loopback": ({"address": "127.0.0.5/8", "gateway": "none"}, {}, "no machine can be reached"),
    "address of a VM": ({}, {"guests": (guest(ipconfig0="ip=10.0.0.144/24,gw=10.0.0.1"),)}, "the address of VM 101"),
    "address of a container": (
        {},
        {"guests": (guest(kind="lxc", net0="name=eth0,bridge=vmbr0,ip=10.0.0.144/16,type=veth"),)},
        "--ip 10.0.0.144 is the address of CT 101",
    ),
    "address answers": ({}, {"answers": True}, "answers already"),
    "no gateway": ({}, {"gateways": ()}, "no gateway is known for 10.0.0.0/24: give --gateway"),
    "hypervisor's gateway is elsewhere": ({}, {"gateways": ("192.168.1.1",)}, "no gateway is known"),
    "gateway elsewhere": ({"gateway": "10.0.1.1"}, {}, "--gateway 10.0.1.1 is not in 10.0.0.0/24"),
    "gateway is itself": ({"gateway": "10.0.0.144"}, {}, "the machine's own address"),
    "gateway is no address": ({"gateway": "router"}, {}, "--gateway 'router': expected an address, or none"),
    "dns is no address": ({"dns": ("dns.lab",)}, {}, "--dns 'dns.lab': expected an address"),
    "no cores": ({"cores": 0}, {}, "--cores 0"),
    "odd memory": ({"memory": "lots"}, {}, "--memory 'lots': expected a size like 64G"),
    "too little memory": ({"memory": "64M"}, {}, "--memory 64M"),
    "odd disk": ({"disk_size": "1.5T"}, {}, "--disk-size '1.5T': expected a size like 200G"),
    "disk smaller than the image": ({"disk_size": "2G"}, {}, "is less than the image's own 3.5 GiB"),
    "no such storage": ({"storage": "ceph"}, {}, "there is none of that name here; those that take disks: local-lvm"),
    "no disks there": ({"storage": "local"}, {}, "pvesm set local --content iso,vztmpl,backup,snippets,images"),
    "several storages": (
        {},
        {"storages": (LOCAL, attrs.evolve(LVM, name="a"), attrs.evolve(LVM, name="b"))},
        "give --storage; those that take disks: a, b",
    ),
    "storage away": ({"storage": "local-lvm"}, {"storages": (LOCAL, attrs.evolve(LVM, active=False))}, "not active"),
    "storage disabled": (
        {"storage": "local-lvm"},
        {"storages": (LOCAL, attrs.evolve(LVM, enabled=False))},
        "`pvesm set local-lvm --disable 0`",
    ),
    "storage full": ({}, {"storages": (LOCAL, attrs.evolve(LVM, available_bytes=GIB))}, "has 1.0 GiB free"),
    "no snippets": (
        {},
        {"storages": (attrs.evolve(LOCAL, content=("iso", "vztmpl", "backup")), LVM)},
        "takes no snippets, where the user-data of cloud-init goes: "
        "`pvesm set local --content iso,vztmpl,backup,snippets`",
    ),
    "no content at all": (
        {},
        {"storages": (attrs.evolve(LOCAL, content=("none",)), LVM)},
        "`pvesm set local --content snippets`",
    ),
    "snippets on volumes": ({"snippets_storage": "local-lvm"}, {}, "take another --snippets-storage"),
    "no snippets storage": ({"snippets_storage": "nfs"}, {}, "--snippets-storage nfs: there is none of that name"),
    "snippet of another": (
        {},
        {"guests": (guest(cicustom="user=local:snippets/llmgw-144-llmgw-node04.yaml"),)},
        "is read by VM 101",
    ),
    "image missing": ({}, {"image": Image("is missing: download a cloud image first")}, "noble.img is missing"),
    "image of another digest": ({}, {"image": Image("", GIB, "bb" * 32, "aa" * 32, "SHA256SUMS")}, "SHA-256 bbbb"),
    "image path with a comma": ({"image": "/a,b.img"}, {}, "expected an absolute path without a comma"),
    "image path is relative": ({"image": "noble.img"}, {}, "expected an absolute path"),
    "no such bridge": ({"bridge": "vmbr9"}, {}, "--bridge vmbr9: there is none of that name here (there are: vmbr0)"),
    "odd VLAN": ({"vlan": 4095}, {}, "--vlan 4095: expected 1 to 4094"),
    "no such device": ({"pci": ("0000:99:00.0",)}, {}, "has no such device (`lspci -D` lists them)"),
    "odd device": ({"pci": ("gpu0",)}, {}, "--pci 'gpu0': expected an address like 0000:41:00.0"),
    "device twice": ({"pci": ("0000:41:00.0", "41:00")}, {}, "named twice"),
    "device of another VM": (
        {"pci": ("41:00.0",)},
        {"guests": (guest(hostpci0="0000:41:00,pcie=1"),)},
        "--pci 0000:41:00.0 belongs to VM 101 (other) on pve",
    ),
    "no IOMMU": ({"pci": ("41:00.0",)}, {"pci": (attrs.evolve(H100, iommu_group=-1),)}, "is in no IOMMU group"),
    "SeaBIOS with a GPU": ({"pci": ("41:00.0",), "bios": "seabios"}, {}, "does not go with --pci"),
    "odd user": ({"user": "a b"}, {}, "--user 'a b': expected a name"),
    "no keys": ({}, {"keys": AuthorizedKeys("/k")}, "--ssh-keys /k holds no key: nobody could log in"),
    "keys missing": ({}, {"keys": AuthorizedKeys("/k", trouble="is missing")}, "--ssh-keys /k is missing"),
    "not root": ({}, {"is_root": False}, "run this as root"),
    "no quorum": ({}, {"quorate": False}, "no quorum"),
    "too old": ({}, {"version": (7, 1, 8)}, "this is Proxmox VE 7.1.8, and importing needs 7.2"),
    "binary missing": ({}, {"binary_trouble": "x cannot be read: No such file"}, "--binary x cannot be read"),
}


@pytest.mark.parametrize(("asked", "found", "said"), PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_is_one_line_with_the_way_out(asked: dict[str, Any], found: dict[str, Any], said: str) -> None:
    assert said in only(find_problems(request(**asked), facts(**found)))


def test_all_problems_are_told_at_once() -> None:
    bad = request(vmid=1, name="X", address="x", cores=0, memory="x", storage="x", bridge="x", user="", dns=("x",))
    assert len(find_problems(bad, facts())) == 9


def test_nothing_is_concluded_from_what_could_not_be_read() -> None:
    unread = facts(guests=None, storages=None, bridges=None, pci=None, version=None, quorate=None, troubles=("why",))
    assert find_problems(request(pci=("41:00.0",)), unread) == ("why",)


@pytest.mark.parametrize(
    "elsewhere",
    [
        guest(node="pve2", hostpci0="0000:41:00.0"),
        guest(hostpci0="0000:41:00.1"),
        guest(hostpci0="mapping=gpus,pcie=1"),
        guest(net0="virtio=BC:24:11:00:00:00,bridge=vmbr0", ipconfig0="ip=dhcp"),
        guest(144 + 1, name="llmgw-node041"),
    ],
)
def test_what_only_looks_alike_is_no_problem(elsewhere: Guest) -> None:
    assert find_problems(request(pci=("0000:41:00.0",)), facts(guests=(elsewhere,))) == ()


def test_what_is_left_open_is_chosen() -> None:
    chosen = choose(request(), facts())
    assert (chosen.storage, chosen.gateway, chosen.grows) == ("local-lvm", "10.0.0.1", False)
    only_one = facts(storages=(LOCAL, attrs.evolve(LVM, name="tank")))
    assert choose(request(disk_size="200G", gateway="none"), only_one) == attrs.evolve(
        chosen, storage="tank", gateway="", grows=True
    )


def test_an_address_of_ipv6_takes_its_own_gateway() -> None:
    asked = request(address="fd00::144/64")
    assert only(find_problems(asked, facts())).startswith("no gateway is known for fd00::/64")
    assert choose(asked, facts(gateways=("10.0.0.1", "fd00::1"))).gateway == "fd00::1"


def test_what_is_worth_knowing_is_a_note() -> None:
    unsure = facts(image=Image("", GIB), keys=AuthorizedKeys("/k", ("ssh-ed25519 AAAA",), (3, 7)))
    assert find_problems(request(), unsure) == ()
    first, second = find_notes(request(), unsure)
    assert "not compared with a checksum" in first
    assert second == "/k: left out what is no key, in line 3, 7"


@pytest.mark.parametrize(
    ("address", "gateway", "fits"),
    [
        ("2001:db8::5/64", "fe80::1", True),
        ("2001:db8::5/64", "2001:db8::1", True),
        ("2001:db8::5/64", "2001:db9::1", False),
        ("10.0.0.144/24", "fe80::1", False),
        ("10.0.0.144/24", "169.254.0.1", False),
    ],
)
def test_a_router_of_ipv6_may_be_called_by_its_link_local_address(address: str, gateway: str, fits: bool) -> None:
    found = find_problems(request(address=address, gateway=gateway), facts())
    assert fits == (found == ())


def test_a_digest_that_is_none_is_told_as_such() -> None:
    image = Image("", GIB, "aa" * 32, "zz", "--image-sha256")
    assert only(find_problems(request(image_sha256="zz"), facts(image=image))).endswith(
        "expected 64 hexadecimal digits"
    )


def test_an_image_that_is_none_has_no_note_besides() -> None:
    assert find_notes(request(), facts(image=Image("is missing"))) == ()


def test_a_file_of_keys_that_has_no_end_is_refused() -> None:
    assert read_keys(Path("/dev/zero")).trouble == "is too long for a file of keys"
