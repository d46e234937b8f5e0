"""`llmgw-provision-node` against a hypervisor that keeps state: what it makes, and what it leaves behind."""

import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from attrs import define

from llmgw_core.errors import LlmgwError
from llmgw_core.provision import awaiting
from llmgw_core.testing.fake_proxmox import FakeProxmox

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFJ5YW5SeWFuUnlhblJ5YW5SeWFuUnlhblJ5YW5SeWFu root@pve # yes: no"
PROGRAM = (sys.executable, "-c", "from llmgw_core.cli.provision_node import main; main()")
DEADLINE_S = 60.0
OTHER = {"kind": "qemu", "node": "pve2", "running": True, "config": {"name": "somebody"}}


@define
class Hypervisor:
    fake: FakeProxmox
    image: Path
    keys: Path

    def words(self, *more: str, **options: str) -> list[str]:
        told = {
            "vmid": "144",
            "name": "llmgw-node04",
            "ip": "10.0.0.144/24",
            "image": str(self.image),
            "ssh-keys": str(self.keys),
            "pve-root": str(self.fake.pve_root),
            "lock": str(self.fake.directory / "run.lock"),
            "wait": "0",
            **options,
        }
        return [*(word for key, value in told.items() for word in (f"--{key}", value)), *more]

    @property
    def environment(self) -> dict[str, str]:
        # Were the commands of a real hypervisor found here, they would be asked.
        path = ":".join(filter(None, sys.path))
        return {**os.environ, "PATH": f"{self.fake.bin}:/usr/bin:/bin", "PYTHONPATH": path}

    def start(self, *more: str, **options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROGRAM, *self.words(*more, **options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def run(self, *more: str, wanted: int = 0, **options: str) -> tuple[str, str]:
        process = self.start(*more, **options)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == wanted, stdout + stderr
        assert "Traceback" not in stderr
        return stdout, stderr

    @property
    def snippets(self) -> list[str]:
        return sorted(path.name for path in (self.fake.disks / "snippets").iterdir())

    def nothing_is_left(self, **guests: Any) -> bool:
        state = self.fake.state
        return (state["guests"], state["volumes"], self.snippets) == (guests, [], [])


@pytest.fixture
def hypervisor(tmp_path: Path) -> Hypervisor:
    image = tmp_path / "noble.img"
    image.write_bytes(b"QFI\xfb" + bytes(20) + (7 << 29).to_bytes(8, "big") + bytes(4096))  # 3.5 GiB
    (tmp_path / "SHA256SUMS").write_text(f"{hashlib.sha256(image.read_bytes()).hexdigest()} *{image.name}\n")
    keys = tmp_path / "authorized_keys"
    keys.write_text(f"{KEY}\n")
    return Hypervisor(FakeProxmox(tmp_path / "proxmox"), image, keys)


def test_a_machine_is_made_configured_and_started(hypervisor: Hypervisor) -> None:
    stdout, _ = hypervisor.run("--dns", "10.0.0.2", "--dns", "10.0.0.3", vlan="7", memory="64G", cores="16")
    assert stdout == "VM 144 (llmgw-node04) is started; nothing was waited for\n"
    made = hypervisor.fake.state["guests"]["144"]
    assert made["running"]
    config = made["config"]
    wanted = {
        "name": "llmgw-node04",
        "net0": "virtio,bridge=vmbr0,tag=7",
        "ipconfig0": "ip=10.0.0.144/24,gw=10.0.0.1",
        "nameserver": "10.0.0.2 10.0.0.3",
        "memory": "65536",
        "cores": "16",
        "bios": "seabios",
        "scsi0": "local-lvm:vm-144-disk-0,size=3584M",
        "ide2": "local-lvm:vm-144-cloudinit,size=3584M",
        "boot": "order=scsi0",
        "cicustom": "user=local:snippets/llmgw-144-llmgw-node04.yaml",
        "agent": "enabled=1",
        "description": "made by llmgw-provision-node",
    }
    assert {key: config[key] for key in wanted} == wanted
    assert hypervisor.snippets == ["llmgw-144-llmgw-node04.yaml"]


def test_the_hypervisors_keys_are_in_the_user_data_as_they_are(hypervisor: Hypervisor) -> None:
    hypervisor.run()
    path = hypervisor.fake.disks / "snippets" / hypervisor.snippets[0]
    assert yaml.safe_load(path.read_text())["users"] == [{"name": "root", "ssh_authorized_keys": [KEY]}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_gpu_goes_with_firmware_that_has_room_for_it(hypervisor: Hypervisor) -> None:
    hypervisor.run("--disk-size", "200G", pci="41:00.0")
    config = hypervisor.fake.state["guests"]["144"]["config"]
    assert (config["hostpci0"], config["bios"], config["machine"]) == ("0000:41:00.0,pcie=1", "ovmf", "q35")
    assert "efidisk0" in config
    assert ["qm", "disk", "resize", "144", "scsi0", "204800M"] in hypervisor.fake.calls


@pytest.mark.parametrize("kind", ["dir", "lvmthin", "zfspool"])
def test_f28_no_volume_is_named_by_llmgw(hypervisor: Hypervisor, kind: str) -> None:
    storages = [{**each, "content": "images,snippets", "type": kind} for each in hypervisor.fake.state["storages"]]
    hypervisor.fake.change(storages=storages)
    hypervisor.run(storage="local-lvm")
    words = [word for call in hypervisor.fake.calls for word in call]
    assert not [word for word in words if "vm-144-disk" in word]
    expected = "local-lvm:144/vm-144-disk-0.raw" if kind == "dir" else "local-lvm:vm-144-disk-0"
    assert hypervisor.fake.state["guests"]["144"]["config"]["scsi0"].startswith(expected)


@pytest.mark.parametrize("kind", ["qemu", "lxc"])
def test_f30_an_id_of_another_member_is_refused_before_any_change(hypervisor: Hypervisor, kind: str) -> None:
    hypervisor.fake.change(guests={"144": {**OTHER, "kind": kind}})
    _, stderr = hypervisor.run(wanted=2)
    assert "--vmid 144 is taken by" in stderr
    assert "on pve2" in stderr
    assert hypervisor.fake.changes == []


def test_f30_an_id_that_is_taken_meanwhile_stays_with_whoever_has_it(hypervisor: Hypervisor) -> None:
    fault = "unable to create VM 144 - VM 144 already exists on node 'pve2'"
    hypervisor.fake.change(faults={"qm create": fault})
    _, stderr = hypervisor.run(wanted=1)
    assert f"{fault}; the cluster has that id already" in stderr
    assert "nothing of it is left" in stderr
    assert [call[1] for call in hypervisor.fake.changes] == ["create"]


def test_a_machine_of_somebody_else_is_never_removed(hypervisor: Hypervisor) -> None:
    """Made by hand in the moment between looking and taking."""
    here = {**OTHER, "node": "pve"}
    hypervisor.fake.change(faults={"qm create": "hold"})
    process = hypervisor.start()
    wait_for(hypervisor.fake.directory / "hanging")
    hypervisor.fake.change(guests={"144": here}, faults={})
    (hypervisor.fake.directory / "go").touch()
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "already exists on node 'pve'" in stderr
    assert hypervisor.nothing_is_left(**{"144": here})


def test_all_problems_are_told_at_once_and_nothing_is_changed(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(bridges=["vmbr1"], guests={"101": {**OTHER, "config": {"name": "llmgw-node04"}}})
    storages = [
        {**each, "content": each["content"].replace(",snippets", "")} for each in hypervisor.fake.state["storages"]
    ]
    hypervisor.fake.change(storages=storages, answering=["10.0.0.144"])
    _, stderr = hypervisor.run(wanted=2)
    assert len(stderr.splitlines()) == 4
    assert "`pvesm set local --content iso,vztmpl,backup,snippets`" in stderr
    assert hypervisor.fake.changes == []


def test_without_proxmox_it_says_where_to_run(hypervisor: Hypervisor) -> None:
    for name in ("pvesh", "qm", "pvesm"):
        (hypervisor.fake.bin / name).unlink()
    _, stderr = hypervisor.run(wanted=2)
    assert "run this on the Proxmox hypervisor itself" in stderr


def test_a_dry_run_prints_the_very_commands_and_the_user_data(hypervisor: Hypervisor) -> None:
    stdout, _ = hypervisor.run("--dry-run")
    assert hypervisor.fake.changes == []
    assert hypervisor.nothing_is_left()
    commands, _, user_data = stdout.partition("\n\n")
    assert yaml.safe_load(user_data)["hostname"] == "llmgw-node04"
    printed = [shlex.split(line) for line in commands.splitlines() if not line.startswith("#")]
    hypervisor.run()
    hidden = re.compile(r"unfinished \(\w+\)")
    run = [[hidden.sub("unfinished (RUN)", word) for word in call] for call in hypervisor.fake.changes]
    assert printed == run


def test_a_dry_run_tells_problems_as_a_run_does(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(guests={"144": OTHER})
    stdout, stderr = hypervisor.run("--dry-run", wanted=2)
    assert stdout == ""
    assert "--vmid 144 is taken" in stderr


FAULTS = {
    "import fails half-way": ({"import": "No space left on device"}, "the storage is full"),
    "cloud-init drive": ({"qm set --ide2": "storage 'local-lvm' does not support vm images"}, "does not support"),
    "resize": ({"qm disk resize": "qemu-img: Image size must not shrink"}, "must not shrink"),
    "start": ({"qm start": "cannot prepare PCI pass-through, IOMMU not present"}, "switch the IOMMU on"),
    "last change": ({"qm set --description": "cluster not ready - no quorum?"}, "pvecm status"),
    "snippet's path": ({"pvesm path": "storage 'local' is not online"}, "is not online"),
}


@pytest.mark.parametrize(("faults", "said"), FAULTS.values(), ids=FAULTS)
def test_what_fails_half_way_is_undone_and_the_next_run_does_it(
    hypervisor: Hypervisor, faults: dict[str, str], said: str
) -> None:
    hypervisor.fake.change(faults=faults)
    _, stderr = hypervisor.run("--disk-size", "10G", wanted=1)
    assert said in stderr
    assert "nothing of it is left" in stderr
    assert hypervisor.nothing_is_left()
    hypervisor.fake.change(faults={})
    hypervisor.run()


def test_what_cannot_be_undone_is_named_with_its_command(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(faults={"qm start": "kvm: no", "qm destroy": "can't lock file 'x' - got timeout"})
    _, stderr = hypervisor.run(wanted=1)
    assert "VM 144 is left" in stderr
    command = re.search(r"qm destroy 144 --purge 1 --destroy-unreferenced-disks 1 --skiplock 1$", stderr, re.MULTILINE)
    assert command
    hypervisor.fake.change(faults={})
    _, stderr = hypervisor.run(wanted=2)
    assert "VM 144 (llmgw-node04) on pve is unfinished" in stderr
    subprocess.run(command[0].split(), check=True, env=hypervisor.environment)
    hypervisor.run()


def test_a_snippets_path_that_is_none_is_not_written_to(hypervisor: Hypervisor) -> None:
    (hypervisor.fake.bin / "pvesm").write_text("#!/bin/sh\nexit 0\n")
    _, stderr = hypervisor.run(wanted=1)
    assert "pvesm path local:snippets/llmgw-144-llmgw-node04.yaml says '.', which is no path of a file" in stderr
    assert "nothing of it is left" in stderr


def test_a_lock_that_cannot_be_taken_is_told(hypervisor: Hypervisor) -> None:
    _, stderr = hypervisor.run(wanted=2, lock="/proc/no/lock")
    assert "cannot open /proc/no/lock" in stderr
    assert hypervisor.fake.changes == []


def test_what_cannot_be_told_after_the_machine_is_made_is_no_refusal(hypervisor: Hypervisor) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [*PROGRAM, *hypervisor.words()], stdout=full, stderr=subprocess.PIPE, text=True, env=hypervisor.environment
        )
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "cannot print: No space left on device" in stderr) == (1, True), stderr


def test_a_snippet_that_cannot_be_written_leaves_no_machine(hypervisor: Hypervisor) -> None:
    (hypervisor.fake.disks / "snippets").rmdir()
    (hypervisor.fake.disks / "snippets").write_text("in the way")
    _, stderr = hypervisor.run(wanted=1)
    assert "cannot write" in stderr
    assert hypervisor.fake.state["guests"] == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["pvesh get /version", "qm create", "qm set --scsi0", "qm start"])
def test_a_signal_in_the_middle_undoes_all(hypervisor: Hypervisor, number: signal.Signals, when: str) -> None:
    hypervisor.fake.change(faults={when: "hang:40"})
    process = hypervisor.start()
    wait_for(hypervisor.fake.directory / "hanging")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + number
    assert f"interrupted by {number.name}" in stderr
    assert hypervisor.nothing_is_left()


def test_a_second_signal_does_not_stop_the_undoing(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(faults={"qm start": "hang:40", "qm destroy": "hang:1"})
    process = hypervisor.start()
    wait_for(hypervisor.fake.directory / "hanging")
    (hypervisor.fake.directory / "hanging").unlink()
    process.send_signal(signal.SIGINT)
    wait_for(hypervisor.fake.directory / "hanging")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert hypervisor.nothing_is_left()


def test_what_a_killed_run_left_is_named_to_the_next(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(faults={"qm set --scsi0": "hang:5"})
    process = hypervisor.start()
    wait_for(hypervisor.fake.directory / "hanging")
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    hypervisor.fake.change(faults={})
    _, stderr = hypervisor.run(wanted=2)
    assert "or one was killed; if none runs on pve, remove it there by `qm stop 144 && qm destroy 144" in stderr


def test_of_two_runs_at_once_one_makes_it_and_the_other_is_refused(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(faults={"qm create": "hang:1"})
    runs = [hypervisor.start(), hypervisor.start()]
    said = [each.communicate(timeout=DEADLINE_S)[1] for each in runs]
    assert sorted(each.returncode for each in runs) == [0, 2]
    (refused,) = (text for text, each in zip(said, runs, strict=True) if each.returncode == 2)
    assert "is unfinished: another run of this command makes it now" in refused or "is taken by VM 144" in refused
    assert "--ip 10.0.0.144 is the address of VM 144" in refused
    assert hypervisor.fake.state["guests"]["144"]["running"]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} has not come"
        time.sleep(0.02)


# until it answers


@pytest.fixture
def waits(hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch) -> Hypervisor:
    """The wait in this process, where a test says whether port 22 is open."""
    monkeypatch.setenv("PATH", hypervisor.environment["PATH"])
    monkeypatch.setattr(awaiting, "EVERY_S", 0.05)
    monkeypatch.setattr(awaiting, "_is_open", lambda address, port: (address, port) == ("10.0.0.144", 22))
    hypervisor.run()
    return hypervisor


def waiting(limit_s: float = DEADLINE_S, progress: Any = lambda line: None) -> awaiting.Waiting:
    return awaiting.Waiting(144, "10.0.0.144", limit_s, progress)


@pytest.mark.usefixtures("waits")
def test_a_machine_is_ready_when_its_cloud_init_is_done(waits: Hypervisor) -> None:
    answer = waiting().until_ready()
    assert answer.status == "done"
    assert [key.split()[0] for key in answer.host_keys] == ["ssh-ed25519"]


def test_it_waits_for_the_guest_agent_cloud_init_and_another_boot(waits: Hypervisor) -> None:
    stages = ["agent", "running", "boots", "done"]
    told: list[str] = []

    def advance(line: str) -> None:
        told.append(line.partition(": ")[2])
        stages.pop(0)
        said = {"running": "status: running\n", "boots": "status: boots once more\nstatus: done\n"}.get(stages[0])
        waits.fake.change(agent=True, exec=said or "status: done\n")

    waits.fake.change(agent=False)
    waiting(progress=advance).until_ready()
    assert told == [
        "its guest agent does not answer (QEMU guest agent is not running)",
        "it answers; cloud-init: running",
        "it answers; cloud-init: boots once more",
    ]


def test_an_agent_that_runs_no_commands_is_enough(waits: Hypervisor) -> None:
    waits.fake.change(exec_error="Agent error: Command guest-exec has been disabled")
    assert waiting().until_ready() == awaiting.Answer(forbidden=True)


def test_a_failed_cloud_init_is_told_at_once(waits: Hypervisor) -> None:
    waits.fake.change(exec="status: error\n")
    with pytest.raises(Exception, match=r"its cloud-init says error: see /var/log/cloud-init-output.log there"):
        waiting().until_ready()


def test_a_guest_that_never_answers_stays_and_is_named(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(agent=False)
    _, stderr = hypervisor.run(wanted=1, wait="1")
    assert "VM 144 is not ready after 1 s: its guest agent does not answer" in stderr
    assert "VM 144 is made, and stays: `qm terminal 144` shows it; to begin anew: qm stop 144 && qm destroy" in stderr
    assert hypervisor.fake.state["guests"]["144"]["running"]


def test_interrupting_the_wait_leaves_the_machine(hypervisor: Hypervisor) -> None:
    hypervisor.fake.change(faults={"qm guest": "hang:30"})
    process = hypervisor.start(wait="60")
    wait_for(hypervisor.fake.directory / "hanging")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "VM 144 is made, and stays" in stderr
    assert hypervisor.fake.state["guests"]["144"]["running"]


def test_a_release_goes_over_ssh_to_the_host_key_that_the_agent_told(waits: Hypervisor, tmp_path: Path) -> None:
    binary = tmp_path / "llmgw"
    binary.write_bytes(os.urandom(100_000))
    answer = waiting().until_ready()
    assert awaiting.put_release(binary, "10.0.0.144", "ops", answer.host_keys) == "llmgw 0.1.0"
    assert (waits.fake.directory / "sent").read_bytes() == binary.read_bytes()
    assert (waits.fake.directory / "known_hosts").read_text().startswith("10.0.0.144 ssh-ed25519 AAAA")
    (call,) = (call for call in waits.fake.calls if call[0] == "ssh")
    assert "StrictHostKeyChecking=yes" in call
    assert call[-1].startswith("sudo sh -c ")


def test_a_machines_greeting_is_not_its_version(waits: Hypervisor, tmp_path: Path) -> None:
    (waits.fake.bin / "ssh").write_text("#!/bin/sh\necho Unauthorized access is denied\necho llmgw 0.2\n")
    (tmp_path / "llmgw").touch()
    assert awaiting.put_release(tmp_path / "llmgw", "10.0.0.144", "root", [KEY]) == "llmgw 0.2"


def test_a_release_that_has_gone_meanwhile_is_told(waits: Hypervisor, tmp_path: Path) -> None:
    with pytest.raises(LlmgwError, match=r"could not be put on .*: No such file or directory"):
        awaiting.put_release(tmp_path / "gone", "10.0.0.144", "root", [KEY])


def test_without_a_host_key_no_release_is_sent(waits: Hypervisor, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not tell its ssh host key"):
        awaiting.put_release(tmp_path, "10.0.0.144", "root", ())


@pytest.mark.parametrize("whole", [True, False])
def test_the_line_that_installs_compares_the_digest(tmp_path: Path, whole: bool) -> None:
    """The very line, run by a shell here, with its target in a directory."""
    content = b"#!/bin/sh\necho llmgw 9.9\n"
    digest = hashlib.sha256(content).hexdigest()
    line = awaiting._install("root", digest).replace(awaiting.RELEASE, f"{tmp_path}/llmgw")
    ended = subprocess.run(["sh", "-c", line], input=content if whole else content[:-3], capture_output=True)
    assert (ended.returncode == 0) == whole
    assert [path.name for path in tmp_path.iterdir()] == (["llmgw"] if whole else [])
    assert ended.stdout.decode().endswith("llmgw 9.9\n") == whole
