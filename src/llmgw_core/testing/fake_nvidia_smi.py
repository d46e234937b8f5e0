"""An nvidia-smi for machines without GPUs: an executable that prints what the real one prints.

For tests and demonstrations. It answers `--query-gpu=FIELDS --format=csv[,noheader][,nounits]`, refuses an unknown
field in the real one's words, and fails or hangs as it is told. Each start is a line with its pid in `<path>.started`.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "utilization.gpu": "%",
}


@frozen
class Answer:
    """What the fake does. As it is: it lists `gpus` and ends with 0."""

    gpus: tuple[Mapping[str, str], ...] = ()
    """A mapping for each, from a field to its printed text; a field that the first one has not is refused. None: it
    says that no devices were found."""
    before: tuple[str, ...] = ()
    """Lines before the rows."""
    after: tuple[str, ...] = ()
    verbatim: str | None = None
    """Printed in the place of everything else."""
    stderr: str = ""
    code: int = 0
    signal: int | None = None
    """The signal that it dies of after printing."""
    hang: bool = False
    """Whether it prints nothing, ignores SIGTERM and never ends."""
    forks: bool = False
    """Whether a child of it does all this, as of a wrapper script that does not use `exec`."""


def fake_gpus(
    count: int, name: str = "NVIDIA H100 80GB HBM3", memory_mib: int = 81559, node: str = "node", **changes: str
) -> tuple[dict[str, str], ...]:
    """The rows of a node's equal GPUs; the UUIDs depend on the node and the index alone."""
    return tuple(
        {
            "index": str(index),
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}",
            "pci.bus_id": f"00000000:{0x10 + index:02X}:00.0",
            "driver_version": "570.86.15",
            "memory.total": str(memory_mib),
            "memory.used": "1",
            "utilization.gpu": "0",
            "temperature.gpu": "33",
            "mig.mode.current": "Disabled",
            "name": name,
            **changes,
        }
        for index in range(count)
    )


def write_nvidia_smi(path: Path, answer: Answer) -> Path:
    """Write the executable, or change what one does from its next start on."""
    script = _SCRIPT.format(python=sys.executable, answer=json.dumps(_plain(answer)), units=json.dumps(UNITS))
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(script, encoding="utf-8")
    beside.chmod(0o755)
    beside.replace(path)
    return path


def started_pids(path: Path) -> tuple[int, ...]:
    """The pids of all that were started of this one."""
    log = path.with_name(f"{path.name}.started")
    return tuple(map(int, log.read_text().split())) if log.exists() else ()


def _plain(answer: Answer) -> dict[str, Any]:
    return {**attrs.asdict(answer, recurse=False), "gpus": [dict(gpu) for gpu in answer.gpus]}


_SCRIPT = """\
#!{python} -IS
import json, os, signal, sys, time

answer = json.loads({answer!r})
units = json.loads({units!r})
with open(sys.argv[0] + ".started", "a") as log:
    log.write(str(os.getpid()) + "\\n")
if answer["forks"] and os.fork():
    os.wait()
    sys.exit(answer["code"])
if answer["hang"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def given(option):
    found = [word.partition("=")[2] for word in sys.argv[1:] if word.startswith(option + "=")]
    return found[-1].split(",") if found else []


def listing(fields, form):
    known = answer["gpus"][0] if answer["gpus"] else dict.fromkeys(fields)
    for name in fields:
        if name not in known:
            print('Field "%s" is not a valid field to query.\\n' % name)
            sys.exit(2)
    if "noheader" not in form:
        print(", ".join(name + (" [%s]" % units[name] if name in units else "") for name in fields))
    if not (answer["gpus"] or answer["before"] or answer["after"]):
        print("No devices were found")
    for gpu in answer["gpus"]:
        print(", ".join(text(gpu[name], name, form) for name in fields))


def text(value, name, form):
    return value + " " + units[name] if name in units and value.isdigit() and "nounits" not in form else value


if answer["verbatim"] is not None:
    sys.stdout.write(answer["verbatim"])
else:
    print("".join(line + "\\n" for line in answer["before"]), end="")
    listing(given("--query-gpu"), given("--format"))
    print("".join(line + "\\n" for line in answer["after"]), end="")
sys.stderr.write(answer["stderr"])
sys.stdout.flush()
if answer["signal"] is not None:
    os.kill(os.getpid(), answer["signal"])
sys.exit(answer["code"])
"""
