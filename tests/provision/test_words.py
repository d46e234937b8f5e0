"""What Proxmox says is passed on, with a way out where one is known."""

import pytest

from llmgw_core.provision.words import explain_failure, last_words

CREATE = ("qm", "create", "144", "--name", "llmgw-node04")


@pytest.mark.parametrize(
    ("said", "way"),
    [
        pytest.param("unable to create VM 144 - VM 144 already exists on node 'pve2'", "nextid", id="F30"),
        pytest.param("CT 108 already exists on node 'proxmox'", "VMs and containers", id="F30, a container"),
        ("qemu-img: error while writing at byte 0: No space left on device", "the storage is full"),
        ('  Volume group "pve" has insufficient free space (1023 extents): 8192 required.', "the storage is full"),
        ("cluster not ready - no quorum?", "pvecm status"),
        ("can't lock file '/var/lock/qemu-server/lock-144.conf' - got timeout", "wait for it"),
        ("PCI device '0000:41:00.0' already in use by VMID '103'", "--pci"),
        ("cannot prepare PCI pass-through, IOMMU not present", "IOMMU"),
        ("KVM virtualisation configured, but not available. Either disable in VM configuration", "virtualisation"),
        ("volume 'local:snippets/llmgw.yaml' does not exist", "user-data"),
        ("please run as root", "run this as root"),
        pytest.param("unable to parse zfs volume name '5000/vm-5000-disk-0.raw'", "llmgw's", id="F28"),
    ],
)
def test_a_failure_is_told_in_its_own_words_with_the_way_out(said: str, way: str) -> None:
    told = explain_failure(CREATE, 255, f"{said}\n")
    assert told.startswith(f"qm create 144 --name llmgw-node04 failed (255): {said.strip()}; ")
    assert way in told.partition("; ")[2]
    assert "\n" not in told


def test_an_unknown_failure_is_told_as_it_is() -> None:
    assert explain_failure(("qm", "start", "144"), 2, "some words") == "qm start 144 failed (2): some words"
    assert explain_failure(("qm", "start", "144"), 2, "") == "qm start 144 failed (2)"
    assert explain_failure(("qm", "start", "144"), None, "") == "qm start 144 was not over in time"


def test_progress_is_not_what_it_said_last() -> None:
    said = "qemu-img: error while reading at byte 0: Input/output error\ntransferred 3.5 GiB of 3.5 GiB (100.00%)\n"
    assert last_words(said) == "qemu-img: error while reading at byte 0: Input/output error"


def test_a_secretive_length_is_cut() -> None:
    assert len(last_words("x" * 5000)) == 400
