"""The packaged units: what each promises, and that systemd understands them."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from llmgw_core.cli.ca import ca
from llmgw_core.onboard.unit import UNITS, packaged_unit, render_unit
from llmgw_core.testing.ssh_machine import SshMachine, ssh_machine


def settings(name: str) -> dict[str, str]:
    lines = [line for line in packaged_unit(name).splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_f22_engines_survive_a_restart_of_the_agent_and_its_unit_says_so() -> None:
    agent = settings("llmgw-agent.service")
    assert agent["KillMode"] == "process"
    assert agent["Restart"] == "always"
    assert agent["StartLimitIntervalSec"] == "0"
    assert "network-online.target" in agent["After"]
    assert agent["Wants"] == "network-online.target"
    assert "User" not in agent  # only root makes transient units


def test_nothing_of_the_agents_hardening_hides_gpus_adapters_or_the_driver() -> None:
    agent = settings("llmgw-agent.service")
    # systemd.exec(5): ProtectClock= implies DeviceAllow=, with which only what is listed is left of /dev.
    hiding = ("PrivateDevices", "DeviceAllow", "DevicePolicy", "ProtectClock", "ProtectKernelModules", "ProtectHome")
    assert not [name for name in hiding if name in agent]
    assert agent["ReadWritePaths"] == "-/etc/llmgw"


def test_what_renews_its_certificate_may_write_where_that_lies() -> None:
    gateway = settings("llmgw-gateway.service")
    assert "--identity /var/lib/llmgw/gateway/pki/" in gateway["ExecStart"]
    assert gateway["StateDirectory"] == "llmgw/gateway"


@pytest.mark.parametrize(("unit", "role"), [("llmgw-control.service", "server"), ("llmgw-gateway.service", "gateway")])
def test_a_unit_says_how_its_certificate_is_renewed_and_that_command_does_it(
    unit: str, role: str, tmp_path: Path
) -> None:
    name = unit.removeprefix("llmgw-").removesuffix(".service")
    directory = ("--dir", str(tmp_path / "ca"))
    issue = ["issue", role, name, "--out", str(tmp_path / "pki"), *directory]
    for words in (["init", *directory], [*issue, "--ip", "10.0.0.140"] if role == "server" else issue):
        assert CliRunner().invoke(ca, words).exit_code == 0
    file = tmp_path / "pki" / f"{name}.crt"
    before = file.read_text()
    (command,) = re.findall(r"llmgw ca (renew .*)", packaged_unit(unit))
    words = command.replace("--out pki", f"--out {tmp_path}/pki").split()
    assert CliRunner().invoke(ca, [*words, *directory]).exit_code == 0
    assert file.read_text() != before


@pytest.mark.parametrize("name", UNITS)
def test_no_unit_unpacks_a_release_where_another_user_does(name: str) -> None:
    shared = settings(name)["CacheDirectory"] == "llmgw"
    assert shared == (name == "llmgw-agent.service")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    if os.geteuid() != 0 or shutil.which("systemd-analyze") is None:
        pytest.skip("needs root and systemd-analyze, to ask systemd what it reads")
    with ssh_machine(tmp_path_factory.mktemp("units") / "machine") as made:
        yield made


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("executable", ["/usr/local/bin/llmgw", "/opt/my own 100%/llmgw"])
def test_systemd_reads_every_line(tree: SshMachine, name: str, executable: str) -> None:
    tree.write(executable, "#!/bin/sh\n", 0o755)
    tree.write(f"/units/{name}", render_unit(packaged_unit(name), executable))
    inside = ("systemd-analyze", "verify", "--man=no", f"/units/{name}")
    assert tree.run("sh", "-c", 'exec "$@" 2>&1', "sh", *inside) == ""
