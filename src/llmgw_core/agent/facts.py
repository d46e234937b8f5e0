"""The agent's one picture of its node, and the parts that look and keep it true.

Rules: a change wakes whoever reports; what equals the last picture is no change; looking never delays a heartbeat, and
what fails is part of the picture and looked at again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import trio
from attrs import evolve

from llmgw_core.agent.bounds import bound_facts
from llmgw_core.agent.look import LOOK_LIMIT_S, Look
from llmgw_core.agent.settings import AgentSettings
from llmgw_core.discovery.engines import Named
from llmgw_core.discovery.gpus import NvidiaSmi
from llmgw_core.discovery.infiniband import read_tree
from llmgw_core.engines import Engines
from llmgw_core.examine.executable import parse_executable
from llmgw_core.model.node import NOT_LOOKED_YET, Found, GpuReport, IbReport, NodeFacts
from llmgw_core.plan.fabric import resolve_fabrics

LOOK_EVERY_S = 30.0
_MIB = 1024 * 1024
_ROUND_MIB = 1024
"""Free disk is told in steps of a GiB: it changes all the time, and each change would be a report."""


class Picture:
    """The facts as they are now."""

    def __init__(self, settings: AgentSettings) -> None:
        self.facts = NodeFacts(
            agent_version=version("llmgw-core"),
            gpus=GpuReport(Found.FAILED, reason=NOT_LOOKED_YET),
            infiniband=IbReport(Found.FAILED, reason=NOT_LOOKED_YET),
            serve_ports=settings.serve_ports,
            rendezvous_ports=settings.rendezvous_ports,
        )
        self._changed = trio.Event()

    def change(self, **changes: Any) -> None:
        changed = bound_facts(evolve(self.facts, **changes))
        if changed != self.facts:
            self.facts = changed
            self._changed.set()
            self._changed = trio.Event()

    async def wait_other_than(self, facts: NodeFacts | None) -> NodeFacts:
        """The facts, as soon as they are other than these."""
        while self.facts == facts:
            await self._changed.wait()
        return self.facts


async def watch_hardware(picture: Picture, settings: AgentSettings) -> None:
    """GPUs, InfiniBand, fabrics, disk: at once, and again and again."""
    nvidia_smi = NvidiaSmi(settings.nvidia_smi, environ=os.environ)
    infiniband = infiniband_look(settings.ib_root)
    disk = Look(partial(_disk_free_mib, settings.state), None)
    picture.change(machine_id=_machine_id(settings.machine_id))
    while True:
        ports = await infiniband.take()
        fabrics = resolve_fabrics(settings.fabrics, ports, picture.facts.fabrics)
        picture.change(infiniband=ports, fabrics=fabrics, disk_free_mib=await disk.take())
        picture.change(gpus=await nvidia_smi.fetch_gpus())
        await trio.sleep(LOOK_EVERY_S)


def infiniband_look(root: Path) -> Look[IbReport]:
    reason = f"{root} could not be read within {LOOK_LIMIT_S:g} s: a file of it blocks"
    return Look(partial(read_tree, root), IbReport(Found.FAILED, reason=reason))


def _disk_free_mib(directory: Path) -> int | None:
    with suppress(OSError):
        return shutil.disk_usage(directory).free // _MIB // _ROUND_MIB * _ROUND_MIB
    return None


def _machine_id(file: Path) -> str | None:
    with suppress(OSError):
        return file.read_text(encoding="ascii", errors="replace").strip() or None
    return None


def unknown_programs(engines: Engines, settings: AgentSettings) -> Iterator[str]:
    """The programs that the operator named and no plugin runs, each with what could have been meant."""
    known = sorted(program.name for plugin in engines.loaded for program in plugin.info.programs)
    for name in sorted(set(settings.programs) - set(known)):
        yield f"engines.{name}: no loaded plugin has a program {name!r} (there are: {', '.join(known) or 'none'})"


def named_programs(engines: Engines, settings: AgentSettings) -> Named:
    """The programs that the operator named, sorted to their engines."""
    executables = {
        plugin.info.name: {
            program.name: parse_executable(settings.programs[program.name])
            for program in plugin.info.programs
            if program.name in settings.programs
        }
        for plugin in engines.loaded
    }
    return Named(executables, os.environ)
