"""What speaks against making a machine a node, all of it at once; and what is worth knowing.

In: a request, facts.  Out: problems and notes, each one line with the way out.  Pure.
Rules: nothing is concluded from what could not be read; nothing is issued while there is a problem.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path

from attrs import evolve

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import BadName, check_name
from llmgw_core.net.call import Server, parse_server
from llmgw_core.onboard.certificate import other_nodes
from llmgw_core.onboard.facts import Facts, Family, Machine, Release
from llmgw_core.onboard.probe import ANCHORS, PYTHONS
from llmgw_core.onboard.request import ETC, IB_ROOT, NO_FABRIC, SETTINGS, NodeRequest
from llmgw_core.onboard.settings import ib_root_of, node_of, settings_problems
from llmgw_core.onboard.unit import executable_problem
from llmgw_core.pki.delivery import Delivery, NameTaken
from llmgw_core.pki.validity import BACKDATED, describe_span
from llmgw_core.plan.fabric_words import parse_fabrics
from llmgw_core.provision.awaiting import RELEASE

Check = Callable[[NodeRequest, Facts], Iterator[str]]

_MOST_CLOCK_S = 30.0
_MOST_AHEAD = timedelta(days=1)
_LEAST_KIB = 1024
_UNPACKED = 5
"""How many times its size a release takes once it is unpacked."""
_ARCHITECTURES = {"amd64": ("x86_64", "amd64"), "arm64": ("aarch64", "arm64")}
_NEEDED_TOOLS = ("systemctl", "sha256sum", "mktemp", "base64")


def find_problems(request: NodeRequest, facts: Facts) -> tuple[str, ...]:
    return (*(problem for check in _CHECKS for problem in check(request, facts)), *facts.troubles)


def find_notes(request: NodeRequest, facts: Facts) -> tuple[str, ...]:
    """What stops nothing."""
    notes = [*facts.authority_notes]
    if facts.server is not None and facts.server.trouble:
        notes.append(
            f"whether {request.server} shows a certificate for that name is not known, since it does not answer here: "
            f"{facts.server.trouble}"
        )
    if facts.server is not None and facts.server.left:
        notes.append(
            f"the certificate of {request.server} ends in {facts.server.left}: is there an authority (--ca-dir) that "
            "renews it? Else the first lines of `llmgw units control` say how"
        )
    if facts.machine is not None:
        notes += _machine_notes(request, facts.machine, facts.known_nodes)
    return tuple(notes)


def server_of(request: NodeRequest) -> Server | None:
    try:
        return parse_server(request.server)
    except LlmgwError:
        return None


def name_problem(node: str) -> str:
    """Why nobody can be called so; empty: somebody can."""
    try:
        Delivery(Path(ETC), check_name(node))
    except (BadName, NameTaken) as error:
        return f"--node {error}"
    return ""


def _find_word_problems(request: NodeRequest, facts: Facts) -> Iterator[str]:
    yield from request.complaints
    named = request
    if problem := name_problem(request.node):
        yield problem
        named = evolve(request, node="n")
    yield from request.login.problems()
    before = facts.machine.settings if facts.machine is not None else None
    yield from settings_problems(named, before)
    if request.command and (problem := executable_problem(request.command)):
        yield problem


def _find_server_problems(request: NodeRequest, facts: Facts) -> Iterator[str]:
    seen, server = facts.server, server_of(request)
    if seen is None or server is None or seen.trouble:
        return
    if not seen.ours:
        yield (
            f"{server} shows a certificate of another authority than this one: name its directory by --ca-dir, or "
            "issue the control plane's certificate here (llmgw ca issue server)"
        )
    wanted = _name_of(server.host)
    if wanted.lower() not in map(str.lower, seen.names):
        option = "--ip" if wanted.startswith("IP:") else "--dns"
        yield (
            f"the certificate of {server} is valid for {', '.join(seen.names) or 'no name'}, and the node would look "
            f"for {wanted}: take one of those as --server, or issue it again with {option} {server.host}"
        )
    if seen.fault:
        yield f"the certificate of {server} {seen.fault}"


def _find_release_problems(request: NodeRequest, facts: Facts) -> Iterator[str]:
    release, machine = facts.release, facts.machine
    if release is None:
        if machine is not None and not _has_llmgw(machine):
            yield _no_release(request, machine)
        return
    if release.trouble:
        yield f"--binary {release.path} {release.trouble}"
    elif machine is not None and (reason := _why_not_for(release, machine)):
        yield f"{release.path} is for {release.platform}, and {request.login.address} is {reason}: take that one's file"
    if machine is not None and not machine.python:
        yield _no_python(request, machine)


def chosen_release(release: Release | None, machine: Machine) -> Release | None:
    """The file that runs here may be for another platform than the machine, which may have its own already."""
    if release is None or release.given or not _has_llmgw(machine):
        return release
    return None if _why_not_for(release, machine) else release


def _has_llmgw(machine: Machine) -> bool:
    return machine.release_says.startswith("llmgw ")


def _no_release(request: NodeRequest, machine: Machine) -> str:
    if request.command:
        said = f" (it says: {machine.release_says})" if machine.release_says else ""
        return f"--command {request.command}: there is no llmgw on {request.login.address}{said}; install it there"
    return (
        "there is no release to install: this llmgw runs from no self-contained file. Name one by --binary; or install "
        f"it on {request.login.address} by pip, and name it: --command /opt/llmgw/bin/llmgw"
    )


def _no_python(request: NodeRequest, machine: Machine) -> str:
    found = f"has {machine.other_python} only" if machine.other_python else "has no python3"
    way = "dnf install python3.12" if machine.family is Family.REDHAT else "apt-get install python3"
    return (
        f"{request.login.address} {found}, and a release needs Python 3.11 to 3.14 (it looks for {', '.join(PYTHONS)}):"
        f" {way}, or what brings one there"
    )


def _why_not_for(release: Release, machine: Machine) -> str:
    """The machine's platform, where the release is for another."""
    if not release.platform:
        return ""
    system, _, architecture = release.platform.partition("-")
    fits = machine.architecture in _ARCHITECTURES.get(architecture, (architecture,))
    return "" if fits and system == machine.system.lower() else f"{machine.system} {machine.architecture}"


def _find_machine_problems(request: NodeRequest, facts: Facts) -> Iterator[str]:
    machine, address = facts.machine, request.login.address
    if machine is None:
        return
    if not machine.becomes_root:
        said = f" ({machine.sudo_said})" if machine.sudo_said else ""
        yield (
            f"{request.login.user} at {address} is not root, and sudo wants a password or is not there{said}: "
            "--ssh-user root, or give that user `NOPASSWD: ALL` in /etc/sudoers.d"
        )
    if machine.system != "Linux" or not machine.has_systemd:
        yield f"{address} runs no systemd ({machine.os_name or machine.system}): the agent's unit needs it"
    if missing := [tool for tool in _NEEDED_TOOLS if tool not in machine.tools]:
        yield f"{address} has no {', '.join(missing)}: install what brings them (coreutils, systemd)"
    if machine.family in ANCHORS and (tool := trust_tool(machine.family)) not in machine.tools:
        yield f"{address} has no {tool}, so nothing there could trust the root: install its package ca-certificates"
    yield from _find_room_problems(request, facts, machine)
    yield from _find_other_node(request, machine)
    if facts.online_from and not machine.active:
        yield (
            f"{request.node} is online from {facts.online_from}, and no agent runs at {address}: another machine has "
            "that name. Is --node right? If this one is to take its place, stop the agent there first (systemctl "
            "disable --now llmgw-agent); if it has just gone, wait a minute"
        )


def _find_other_node(request: NodeRequest, machine: Machine) -> Iterator[str]:
    """A host name may differ from the node id; a machine that has been made a node may not be made another one."""
    found = other_nodes(request.node, machine)
    if (said := node_of(machine.settings)) and said != request.node:
        found = {SETTINGS: said, **found}
    for other in dict.fromkeys(found.values()):
        files = [path for path, name in found.items() if name == other]
        keys = [f"{path.removesuffix('.crt')}.key" for path in files if path.endswith(".crt")]
        yield (
            f"{request.login.address} is node {other} already ({', '.join(files)}): is --addr right? To give it "
            f"another name, take {other} out of the fleet, and remove there: {shlex.join(('rm', '-f', *files, *keys))}"
        )


def _find_room_problems(request: NodeRequest, facts: Facts, machine: Machine) -> Iterator[str]:
    release_kib = 0
    if facts.release is not None and machine.digests.get(RELEASE) != facts.release.sha256:
        release_kib = facts.release.size_bytes // 1024
    if machine.becomes_root and machine.closed:
        closed = ", ".join(machine.closed)
        yield f"{request.login.address}: {closed} cannot be written to there: is it mounted read-only?"
    needs = {"/usr/local/bin": release_kib, "/etc": 0, "/var": _UNPACKED * release_kib}
    for directory, more in needs.items():
        free = machine.free_kib.get(directory)
        if free is not None and free < more + _LEAST_KIB:
            yield (
                f"{request.login.address}: {directory} has {free / 1024:.1f} MiB free, and needs "
                f"{(more + _LEAST_KIB) / 1024:.1f}: make room there"
            )


def trust_tool(family: Family) -> str:
    return "update-ca-certificates" if family is Family.DEBIAN else "update-ca-trust"


def _machine_notes(request: NodeRequest, machine: Machine, known_nodes: Collection[str]) -> Iterator[str]:
    address, host_name = request.login.address, machine.hostname.partition(".")[0]
    if host_name != request.node:
        known = f", and {host_name} is another node's name: is --addr right?" if host_name in known_nodes else ":"
        yield (
            f"{address} calls itself {machine.hostname or 'nothing'}{known} Node id and host name may differ, and are "
            f"best one string (hostnamectl set-hostname {request.node})"
        )
    yield from _adapter_notes(request, machine)
    if abs(machine.clock_ahead_s) > _MOST_CLOCK_S:
        yield _clock_note(address, machine.clock_ahead_s)
    if machine.family not in ANCHORS:
        yield (
            f"{address} ({machine.os_name or 'of no known family'}) is told of the root in no way that is known here: "
            "the agent trusts it, and nothing else there does"
        )


def _adapter_notes(request: NodeRequest, machine: Machine) -> Iterator[str]:
    """Of the fabrics that are stated now. A driver may come later: until then the agent says so, and tries on."""
    stated, address = [each for each in request.fabrics if each != NO_FABRIC], request.login.address
    if not stated or (not request.ib_root and ib_root_of(machine.settings) != IB_ROOT):
        return
    try:
        wanted = {hca.name for fabric in parse_fabrics(stated) for hca in fabric.hcas}
    except LlmgwError:  # a problem, and told as one
        return
    missing = sorted(wanted - machine.adapters)
    if missing or not machine.adapters:
        yield (
            f"--fabric is stated, and {address} has {', '.join(sorted(machine.adapters)) or 'no adapter'} in "
            f"{request.adapter_tree}{', and no ' + ', '.join(missing) if missing else ''}: its agent does not start "
            "before that is mended (load the driver, name the tree by --ib-root, or leave out --fabric)"
        )


def _clock_note(address: str, ahead_s: float) -> str:
    span = timedelta(seconds=ahead_s)
    told = f"the clock of {address} is {describe_span(span)} {'ahead' if ahead_s > 0 else 'behind'}"
    if -span > BACKDATED:
        told += ", so a new certificate is not yet valid there, and the agent goes on trying until it is"
    if span > _MOST_AHEAD:
        told += ", so that certificates end there before their time, and the agent may let in no control plane"
    return f"{told}: timedatectl set-ntp true"


def _name_of(host: str) -> str:
    """As a certificate has it: `IP:2001:db8::1` however long it was written, or `DNS:llmgw`."""
    from ipaddress import ip_address

    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


_CHECKS: tuple[Check, ...] = (
    _find_word_problems,
    _find_server_problems,
    _find_release_problems,
    _find_machine_problems,
)
