"""What a machine without systemd has in its place: `systemctl` and `journalctl` that keep state and start processes.

For tests. One program that needs no package; what was called is a line each in `calls`. A unit's ExecStart really runs,
in a session of its own, and what it prints is its journal.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path("/var/lib/fake-systemd")
UNITS = Path("/etc/systemd/system")
STOP_S = 10.0


def main(command: str, words: list[str]) -> int:
    HERE.mkdir(parents=True, exist_ok=True)
    with (HERE / "calls").open("a") as calls:
        calls.write(shlex.join((command, *words)) + "\n")
    if command == "journalctl":
        return _journal(words)
    if command != "systemctl":
        return _trust(command)
    state = _read()
    code = _systemctl(state, words)
    (HERE / "state").write_text(json.dumps(state))
    return code


def _read() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((HERE / "state").read_text())
    except FileNotFoundError:
        return {"loaded": {}, "enabled": [], "pids": {}, "invocations": {}}
    return found


def _systemctl(state: dict[str, Any], words: list[str]) -> int:
    verb, unit = words[0], words[-1]
    if verb == "daemon-reload":
        state["loaded"] = {path.name: _digest(path.name) for path in UNITS.glob("*.service")}
    elif verb == "enable":
        state["enabled"] = sorted({*state["enabled"], unit})
    elif verb == "restart":
        return _restart(state, unit)
    elif verb == "stop":
        _stop(state, unit)
        state["pids"].pop(unit, None)
    elif verb in ("is-enabled", "is-active"):
        yes = unit in state["enabled"] if verb == "is-enabled" else _runs(state, unit)
        if verb == "is-active" and not yes and unit in state["pids"]:
            _revive(state, unit)
        print(("enabled" if yes else "disabled") if verb == "is-enabled" else ("active" if yes else "failed"))
        return 0 if yes else 3
    elif verb == "show":
        loaded = state["loaded"].get(unit)
        told = {
            "NeedDaemonReload": "yes" if loaded and loaded != _digest(unit) else "no",
            "LoadState": "loaded" if loaded else "not-found",
            "InvocationID": state["invocations"].get(unit, ""),
            "NRestarts": str(state.get("restarts", 0)),
        }
        print("\n".join(f"{name}={told[name]}" for name in words[words.index("-p") + 1].split(",")))
    return 0


def _digest(unit: str) -> str:
    return hashlib.sha256((UNITS / unit).read_bytes()).hexdigest()


def _restart(state: dict[str, Any], unit: str) -> int:
    _stop(state, unit)
    if state["loaded"].get(unit) != _digest(unit):
        print(f"Failed to restart {unit}: Unit {unit} not found.", file=sys.stderr)
        return 5
    state["restarts"] = 0
    _start(state, unit)
    return 0


def _start(state: dict[str, Any], unit: str) -> None:
    line = next(each for each in (UNITS / unit).read_text().splitlines() if each.startswith("ExecStart="))
    command = shlex.split(line.partition("=")[2].replace("%%", "%"))
    invocation = os.urandom(16).hex()
    with (HERE / invocation).open("ab") as journal:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=journal, stderr=journal, start_new_session=True, cwd="/"
        )
    state["pids"][unit] = process.pid
    state["invocations"][unit] = invocation
    state.setdefault("journal", []).append(invocation)


def _revive(state: dict[str, Any], unit: str) -> None:
    """Restart=always, whenever somebody looks."""
    state["restarts"] = state.get("restarts", 0) + 1
    _start(state, unit)


def _stop(state: dict[str, Any], unit: str) -> None:
    deadline = time.monotonic() + STOP_S
    while _runs(state, unit):
        late = time.monotonic() > deadline
        with suppress(ProcessLookupError):
            os.kill(state["pids"][unit], signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.05)


def _runs(state: dict[str, Any], unit: str) -> bool:
    try:
        stat = Path("/proc", str(state["pids"].get(unit, 0)), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _journal(words: list[str]) -> int:
    state = _read()
    asked = [word.partition("=")[2] for word in words if word.startswith("_SYSTEMD_INVOCATION_ID=")]
    for invocation in asked or state.get("journal", []):
        with suppress(FileNotFoundError):
            lines = (HERE / invocation).read_text().splitlines()
            print("\n".join(reversed(lines) if "-r" in words else lines[-20:]))
    return 0


def _trust(command: str) -> int:
    """As if it had made the system's list of roots anew."""
    anchors, bundle = {
        "update-ca-certificates": ("/usr/local/share/ca-certificates", "/etc/ssl/certs/ca-certificates.crt"),
        "update-ca-trust": ("/etc/pki/ca-trust/source/anchors", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    }[command]
    Path(bundle).parent.mkdir(parents=True, exist_ok=True)
    Path(bundle).write_text("".join(path.read_text() for path in sorted(Path(anchors).glob("*.crt"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
