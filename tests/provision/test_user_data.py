"""What cloud-init reads is what was meant, whatever a key or a name holds."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.provision.user_data import CHANGED_MACHINE_ID, MOST_BYTES, render_user_data

HOSTILE = [
    "yes",
    "no",
    "null",
    "~",
    "1e3",
    "0x1F",
    "12:30:45",
    "# not a comment",
    "a: b",
    "key #comment",
    "- dash",
    "!!python/object",
    "&anchor *alias",
    "{a: b}",
    "[x",
    "'single' \"double\"",
    "back\\slash \\n \\x41",
    "%YAML 1.1",
    "| block",
    "> folded",
    "@at `tick`",
    "tab\tin",
    "new\nline",
    "carriage\rreturn",
    "ünïcödé 漢字",
    "😀 astral",
    "nel\x85ls\u2028ps\u2029",
    "bell\x07del\x7f",
    "bom\ufeff",
    "jinja {{ v1.region }}",
    "---",
    "...",
]


def read(*, name: str = "llmgw-node04", user: str = "root", keys: tuple[str, ...] = ()) -> dict[str, Any]:
    text = render_user_data(name=name, user=user, keys=keys)
    assert text.startswith("#cloud-config\n")
    told = yaml.safe_load(text)
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize("hostile", HOSTILE)
def test_any_key_and_any_name_is_a_string_to_yaml(hostile: str) -> None:
    told = read(name=hostile, user="root", keys=(hostile, "second"))
    assert told["hostname"] == told["fqdn"] == hostile
    assert told["users"] == [{"name": "root", "ssh_authorized_keys": [hostile, "second"]}]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3))
def test_all_text_comes_back_from_yaml(keys: list[str]) -> None:
    assert read(keys=tuple(keys))["users"][0]["ssh_authorized_keys"] == keys


def test_root_logs_in_with_the_keys_alone() -> None:
    told = read(keys=("ssh-ed25519 AAAA me",))
    assert told["disable_root"] is False
    assert told["ssh_pwauth"] is False


def test_another_user_may_do_everything_and_root_is_closed() -> None:
    told = read(user="ops", keys=("k",))
    assert told["disable_root"] is True
    (user,) = told["users"]
    assert (user["name"], user["sudo"], user["lock_passwd"]) == ("ops", "ALL=(ALL) NOPASSWD:ALL", True)


def test_the_guest_agent_is_installed_and_started() -> None:
    told = read()
    assert told["packages"] == ["qemu-guest-agent"]
    assert ["systemctl", "start", "qemu-guest-agent"] in told["runcmd"]


def test_f31_ssh_host_keys_of_an_image_are_not_kept() -> None:
    assert read()["ssh_deletekeys"] is True


@pytest.mark.parametrize(
    ("baked", "made", "changes"),
    [
        pytest.param("aaaa\n", "bbbb", True, id="F46: baked in by a boot before"),
        pytest.param("cccc\n", "cccc", False, id="made by systemd a moment ago, from the VM's UUID"),
    ],
)
def test_f31_a_machine_id_of_the_image_is_made_again(tmp_path: Path, baked: str, made: str, changes: bool) -> None:
    """The very script, on a tree of its own, with a stand-in for systemd-machine-id-setup."""
    per, kind, label, shell, option, script = read()["bootcmd"][0]
    assert (per, kind, shell, option) == ("cloud-init-per", "instance", "sh", "-c")
    assert label.isprintable()
    (tmp_path / "etc").mkdir()
    (tmp_path / "dbus").write_text(baked)
    (tmp_path / "etc/machine-id").write_text(baked)
    setup = tmp_path / "systemd-machine-id-setup"
    setup.write_text(f"#!/bin/sh\n[ -s {tmp_path}/etc/machine-id ] || echo {made} > {tmp_path}/etc/machine-id\n")
    setup.chmod(0o755)
    here = script.replace("/var/lib/dbus/machine-id", f"{tmp_path}/dbus").replace("/etc/", f"{tmp_path}/etc/")
    here = here.replace(CHANGED_MACHINE_ID, f"{tmp_path}/changed")
    subprocess.run(["sh", "-c", here], check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (tmp_path / "etc/machine-id").read_text().strip() == made
    assert (tmp_path / "changed").exists() == changes
    assert not (tmp_path / "dbus").exists()


def test_the_machine_boots_once_more_only_when_its_id_has_changed() -> None:
    assert read()["power_state"] == {"mode": "reboot", "condition": ["test", "-e", CHANGED_MACHINE_ID]}


def test_thousands_of_keys_fit_into_what_proxmox_takes() -> None:
    keys = tuple(f"ssh-ed25519 {'A' * 68} key-{number}" for number in range(5000))
    assert len(render_user_data(name="n", user="root", keys=keys).encode()) < MOST_BYTES
