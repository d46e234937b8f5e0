"""What is to be done on the machine, in order.

In: what it shall have, what it has.  Out: steps, as values; none where all is as it should be.  Pure.
Rules: whatever may fail comes before the certificate is issued; a mark lies there from the first change until the agent
was started with all of them, so that a run that was interrupted is finished by the next; systemd reloads its units only
when one changed, since GPU containers lose their devices by it (F25).
"""

from __future__ import annotations

import hashlib

from attrs import field, frozen

from llmgw_core.onboard.checks import trust_tool
from llmgw_core.onboard.facts import Family, Machine, Release
from llmgw_core.onboard.probe import ANCHORS
from llmgw_core.onboard.request import ETC, SETTINGS, UNFINISHED, UNIT, UNIT_NAME, NodeRequest
from llmgw_core.provision.awaiting import RELEASE

PUBLIC, PRIVATE, PROGRAM = "644", "600", "755"
QUICK_S = 120.0
# An agent that starts in between makes the second move itself.
_MOVE = 'mv -f "$1.new" "$1" && { [ ! -e "$2.new" ] || mv -f "$2.new" "$2"; }'


@frozen
class Put:
    """A file, whole or not at all."""

    path: str
    mode: str
    content: bytes = field(default=b"", repr=False)
    source: str = ""
    """A file of this host's, in place of the content."""
    sha256: str = ""
    secret: bool = False

    @classmethod
    def of(cls, path: str, content: bytes, mode: str = PUBLIC, *, secret: bool = False) -> Put:
        return cls(path, mode, content, sha256=hashlib.sha256(content).hexdigest(), secret=secret)


@frozen
class Run:
    """A command, as root."""

    words: tuple[str, ...]


Step = Put | Run


@frozen
class Wanted:
    """What shall lie on the machine, beside its certificate."""

    root: bytes
    settings: bytes
    unit: bytes
    release: Release | None


@frozen
class Plan:
    before: tuple[Step, ...]
    """Until the certificate is issued."""
    why_new: str
    """Why there is a new one; empty: there is none."""
    after: tuple[Step, ...]

    @property
    def restarts(self) -> bool:
        return bool(self.after)


def plan_steps(request: NodeRequest, machine: Machine, wanted: Wanted, why_new: str) -> Plan:
    files = _changed(machine, wanted)
    trust = _trust(machine, wanted.root)
    reload = files[-1:] == (UNIT,) or machine.needs_reload
    enable = () if machine.enabled else (Run(("systemctl", "enable", "--no-reload", UNIT_NAME)),)
    is_new = bool(files or trust or why_new or reload or enable or machine.unfinished)
    if not is_new and machine.active:
        return Plan((), "", ())
    puts = {
        RELEASE: _put_release(wanted.release),
        f"{ETC}/ca.crt": Put.of(f"{ETC}/ca.crt", wanted.root),
        SETTINGS: Put.of(SETTINGS, wanted.settings),
        UNIT: Put.of(UNIT, wanted.unit),
    }
    begin = (Run(("mkdir", "-p", "-m", PROGRAM, ETC)), Put.of(UNFINISHED, b"by llmgw-onboard-node\n"))
    return Plan(
        before=(*begin, *(puts[path] for path in files), *trust),
        why_new=why_new,
        after=(
            *((Run(("systemctl", "daemon-reload")),) if reload else ()),
            *enable,
            # Explicitly: what changed in a unit holds for what is started after it (F23).
            Run(("systemctl", "restart", UNIT_NAME)),
            Run(("rm", "-f", UNFINISHED)),
        ),
    )


def certificate_steps(request: NodeRequest, certificate: bytes, key: bytes) -> tuple[Step, ...]:
    """The two under other names first, as an agent's renewal does: it ends what is interrupted between the moves."""
    return (
        Put.of(f"{request.key}.new", key, PRIVATE, secret=True),
        Put.of(f"{request.certificate}.new", certificate),
        Run(("sh", "-c", _MOVE, "move", request.key, request.certificate)),
    )


def _changed(machine: Machine, wanted: Wanted) -> tuple[str, ...]:
    """The files that are not there as they should be; the unit last."""
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in _contents(wanted).items()}
    if wanted.release is not None:
        digests = {RELEASE: wanted.release.sha256, **digests}
    return tuple(path for path, digest in digests.items() if machine.digests.get(path) != digest)


def _contents(wanted: Wanted) -> dict[str, bytes]:
    return {f"{ETC}/ca.crt": wanted.root, SETTINGS: wanted.settings, UNIT: wanted.unit}


def _put_release(release: Release | None) -> Put:
    given = release or Release("")
    return Put(RELEASE, PROGRAM, source=given.path, sha256=given.sha256)


def _trust(machine: Machine, root: bytes) -> tuple[Step, ...]:
    """Until the system's own list has the root, whatever was interrupted before."""
    anchor = ANCHORS.get(machine.family)
    if anchor is None:
        return ()
    before = machine.digests.get(anchor)
    same = before == hashlib.sha256(root).hexdigest()
    if same and machine.trusts_root:
        return ()
    # A root that took another's place under one name is only seen when the links are made anew.
    fresh = ("--fresh",) if before and not same and machine.family is Family.DEBIAN else ()
    extract = ("extract",) if machine.family is Family.REDHAT else ()
    return (*(() if same else (Put.of(anchor, root),)), Run((trust_tool(machine.family), *fresh, *extract)))
