"""`llmgw-provision-node`: a machine on this Proxmox hypervisor, from a cloud image to one that answers.

Exit codes: 0 it is there · 1 something failed after changes had begun, and is undone or named · 2 refused, and nothing
was changed · 128 and the signal's number when it was interrupted.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.cli.progress import Progress, run_script, say, with_version
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw_core.provision.facts import Facts
    from llmgw_core.provision.request import MachineRequest
    from llmgw_core.provision.steps import Steps

_DEFAULT_KEYS = Path("/root/.ssh/authorized_keys")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--vmid", type=int, required=True, help="The VM's id; one that exists anywhere in the cluster is refused."
)
@click.option("--name", required=True, help="Host name, VM's name and node id in one: llmgw-node04.")
@click.option("--ip", "address", required=True, metavar="ADDRESS/PREFIX", help="Its static address: 10.0.0.144/24.")
@click.option(
    "--gateway", default="", metavar="ADDRESS", help="Default: this hypervisor's, in the same network. Or: none."
)
@click.option("--image", required=True, metavar="FILE", help="A pristine cloud image, qcow2 or raw.")
@click.option("--image-sha256", default="", metavar="HEX", help="Default: what SHA256SUMS beside the image says.")
@click.option(
    "--storage", default="", help="Where the disk goes. Default: local-lvm, or the only one that takes disks."
)
@click.option("--snippets-storage", default="local", show_default=True, help="Where the user-data goes.")
@click.option("--cores", type=int, default=4, show_default=True)
@click.option("--memory", default="8G", show_default=True, metavar="SIZE")
@click.option("--disk-size", default="", metavar="SIZE", help="Default: the image's own.")
@click.option("--pci", multiple=True, metavar="ADDRESS", help="A device to pass on: 0000:41:00.0. May be repeated.")
@click.option("--bios", type=click.Choice(["seabios", "ovmf"]), help="Default: ovmf with --pci, else seabios.")
@click.option("--bridge", default="vmbr0", show_default=True)
@click.option("--vlan", type=int, help="The VLAN's number on the bridge.")
@click.option("--dns", multiple=True, metavar="ADDRESS", help="Default: as this hypervisor's. May be repeated.")
@click.option("--user", default="root", show_default=True, help="Who the keys let in; another than root gets sudo.")
@click.option(
    "--ssh-keys",
    type=click.Path(path_type=Path),
    default=_DEFAULT_KEYS,
    show_default=True,
    metavar="FILE",
    help="Public keys, as in authorized_keys.",
)
@click.option("--binary", type=click.Path(path_type=Path), metavar="FILE", help="A release to put on it, over ssh.")
@click.option(
    "--wait", type=click.IntRange(0), default=600, show_default=True, metavar="SECONDS", help="0: do not wait."
)
@click.option("--dry-run", is_flag=True, help="Check, print the commands and the user-data, and change nothing.")
@click.option("--pve-root", type=click.Path(path_type=Path), default=Path("/etc/pve"), hidden=True)
@click.option(
    "--lock", type=click.Path(path_type=Path), default=Path("/run/lock/llmgw-provision-node.lock"), hidden=True
)
@with_version
def provision_node(
    ssh_keys: Path, binary: Path | None, wait: int, dry_run: bool, pve_root: Path, lock: Path, **options: Any
) -> None:
    """Make a machine on this Proxmox hypervisor: check everything, import, configure, start, wait."""
    from uuid import uuid4

    from llmgw_core.provision.image import look_at_image
    from llmgw_core.provision.making import Making, NotMade, one_at_a_time
    from llmgw_core.provision.reading import read_facts, read_keys
    from llmgw_core.provision.request import MachineRequest
    from llmgw_core.provision.steps import unfinished_mark

    request = MachineRequest(**{**options, "bios": options["bios"] or ""})
    if binary is not None and not wait:
        raise click.UsageError("--binary is put on a machine that answers: it needs --wait")
    image, keys = look_at_image(Path(request.image), request.image_sha256), read_keys(ssh_keys)
    if dry_run:
        facts = read_facts(request, image, keys, binary, pve_root)
        _print_plan(request, _steps(request, facts, "RUN"))
        return
    run = uuid4().hex[:12]
    making = Making(request.vmid, unfinished_mark(run), say)
    with making.undone_on_failure():
        with one_at_a_time(say, lock):
            steps = _steps(request, read_facts(request, image, keys, binary, pve_root), run)
            making.take(steps)
        making.fill(steps)
    try:
        _after(request, wait, binary)
    except LlmgwError as error:
        raise NotMade(str(error)) from error


def _steps(request: MachineRequest, facts: Facts, run: str) -> Steps:
    """Raises for all problems at once."""
    from llmgw_core.provision.checks import choose, find_notes, find_problems
    from llmgw_core.provision.steps import plan_steps
    from llmgw_core.provision.user_data import render_user_data

    problems = find_problems(request, facts)
    for note in find_notes(request, facts):
        say(f"note: {note}")
    if problems:
        raise LlmgwError("\n".join(problems))
    user_data = render_user_data(name=request.name, user=request.user, keys=facts.keys.keys)
    return plan_steps(request, choose(request, facts), user_data, run)


def _print_plan(request: MachineRequest, steps: Steps) -> None:
    lines = [shlex.join(steps.create)]
    lines += [f"# write {steps.snippet_volume} (its path: pvesm path {steps.snippet_volume})"]
    lines += [shlex.join(argv) for argv in steps.commands[1:]]
    lines += ["", f"# {steps.snippet_volume}", steps.user_data.rstrip("\n")]
    show("\n".join(lines))


def _after(request: MachineRequest, wait: int, binary: Path | None) -> None:
    """Whatever comes now, the machine stays: what it says is what one needs to find out why."""
    from llmgw_core.provision.awaiting import Waiting, put_release
    from llmgw_core.provision.making import NotMade

    address = request.address.partition("/")[0]
    if not wait:
        show(f"VM {request.vmid} ({request.name}) is started; nothing was waited for")
        return
    progress = Progress()
    try:
        answer = Waiting(request.vmid, address, wait, progress).until_ready()
        progress.clear()
        version = put_release(binary, address, request.user, answer.host_keys) if binary else ""
    except LlmgwError as error:
        progress.clear()
        raise NotMade(f"{error}\n{_stays(request)}") from error
    except BaseException:
        progress.clear()
        say(_stays(request))
        raise
    show(f"VM {request.vmid} ({request.name}) answers at {address}" + (f", with {version}" if version else ""))
    for key in answer.host_keys:
        show(f"  its ssh host key: {printable_text(key)}")


def _stays(request: MachineRequest) -> str:
    from llmgw_core.provision.steps import remove_command

    again = f'{remove_command(request.vmid)} && rm "$(pvesm path {request.snippet_volume})"'
    return f"VM {request.vmid} is made, and stays: `qm terminal {request.vmid}` shows it; to begin anew: {again}"


def main() -> None:
    """The command's entry point."""
    from llmgw_core.provision.making import NotMade

    run_script(provision_node, "llmgw-provision-node", NotMade)
