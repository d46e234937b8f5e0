"""Waits until the agent says that the control plane has let it in.

The agent's own log is asked, over ssh: it says the control plane's words, and needs no operator's certificate.
Rule: what time cannot mend is not waited for; what a clock that is set, a driver that comes or a machine that goes can
mend, is.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable

from attrs import frozen

from llmgw_core.onboard.request import UNIT_NAME
from llmgw_core.onboard.ssh import Session
from llmgw_core.provision.words import last_words

EVERY_S = 0.5
ASK_S = 60.0
RESTARTS = 2
"""How often systemd starts an agent again until what it complains of is believed to stay."""

Progress = Callable[[str], None]

# Of the process that runs now only: what an earlier one said proves nothing.
_ASK = f"""\
printf 'state=%s\\n' "$(systemctl is-active {UNIT_NAME})"
printf 'restarts=%s\\n' "$(systemctl show -p NRestarts {UNIT_NAME} | tr -cd 0-9)"
id=$(systemctl show -p InvocationID {UNIT_NAME}); id=${{id#*=}}
[ -z "$id" ] || printf 'link=%s\\n' "$(journalctl -q --no-pager -o cat -r _SYSTEMD_INVOCATION_ID="$id" |
    grep -m 1 -E ' (INFO connected|WARNING not connected) ')"
journalctl -q --no-pager -o cat -n 20 -u {UNIT_NAME} | grep -v '^ ' | sed 's/^/said=/'
"""
_REASON = re.compile(r' not connected reason=("(?:[^"\\]|\\.)*"|\S+)')
# pki/identity.py, net/tls.py, wire/session.py. Dates are not among them: a clock may be set meanwhile. Nor are two
# machines of one name: the other may be this one, before it was installed anew, and is silent soon.
_FINAL = re.compile(
    r"is revoked|are being revoked|certificate's (?:role|common name|URI) |certificate has .* (?:common names|URI)"
    r"|another authority|not trust the authority|of the wrong kind|is not for (?:clientAuth|serverAuth)|for other names"
    r"|speaks protocol|not speak TLS|speaks plain HTTP"
)
_COMPLAINS = ("llmgw: ", "Error: ")
"""How a command's own lines begin, of which the second are click's."""


@frozen
class Heard:
    """What the machine says of its agent."""

    connected: bool = False
    reason: str = ""
    """Why it is not; as far as it says."""
    is_final: bool = False
    """Whether waiting cannot help."""


def await_link(session: Session, limit_s: float, progress: Progress) -> Heard:
    """Until it is connected, or the time is over."""
    begun = time.monotonic()
    while True:
        ended = session.run_as_root(("sh", "-s"), ASK_S, said=_ASK)
        heard = parse_heard(ended.stdout)
        waited = time.monotonic() - begun
        if heard.connected or heard.is_final or waited >= limit_s:
            return heard
        progress(f"{waited:.0f} s: {heard.reason or 'the agent has not called yet'}")
        time.sleep(EVERY_S)


def parse_heard(text: str) -> Heard:
    """Pure."""
    told = defaultdict[str, list[str]](list)
    for line in text.splitlines():
        name, _, value = line.partition("=")
        told[name].append(value)
    state, link, restarts = (" ".join(told[name][:1]) for name in ("state", "link", "restarts"))
    if " INFO connected " in link:
        return Heard(connected=state == "active", reason="" if state == "active" else f"its unit is {state}")
    if found := _REASON.search(link):
        reason = _unquoted(found[1])
        return Heard(reason=reason, is_final=bool(_FINAL.search(reason)))
    return _not_started(state, told["said"], int(restarts or 0))


def _not_started(state: str, said: list[str], restarts: int) -> Heard:
    complaints = [line.partition(": ")[2] for line in said if line.startswith(_COMPLAINS)]
    if state == "active" and not complaints:
        return Heard()
    told = (complaints or [""])[-1] or (last_words("\n".join(said)) if state != "active" else "")
    reason = f"the agent does not start: {told}" if told else f"its unit is {state or 'not known'}"
    return Heard(reason=reason, is_final=bool(complaints) and restarts >= RESTARTS)


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text
