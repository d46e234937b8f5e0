"""Waits until the agent says that the control plane has let it in.

The agent's own log is asked, over ssh: it says the control plane's words, and needs no operator's certificate.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

from attrs import frozen

from llmgw_core.onboard.request import UNIT_NAME
from llmgw_core.onboard.ssh import Session
from llmgw_core.provision.words import last_words

EVERY_S = 0.5
ASK_S = 60.0

Progress = Callable[[str], None]

# Of the process that runs now only: what an earlier one said proves nothing.
_ASK = f"""\
export LC_ALL=C
printf 'state=%s\\n' "$(systemctl is-active {UNIT_NAME})"
id=$(systemctl show -p InvocationID {UNIT_NAME}); id=${{id#*=}}
[ -z "$id" ] || printf 'link=%s\\n' "$(journalctl -q --no-pager -o cat -r _SYSTEMD_INVOCATION_ID="$id" |
    grep -m 1 -E ' (INFO connected|WARNING not connected) ')"
journalctl -q --no-pager -o cat -n 20 -u {UNIT_NAME} | grep -v '^ ' | sed 's/^/said=/'
"""
_REASON = re.compile(r' not connected reason=("(?:[^"\\]|\\.)*"|\S+)')


@frozen
class Heard:
    """What the machine says of its agent."""

    connected: bool = False
    reason: str = ""
    """Why it is not; as far as it says."""


def await_link(session: Session, limit_s: float, progress: Progress) -> Heard:
    """Until it is connected, or the time is over."""
    begun = time.monotonic()
    while True:
        ended = session.run_as_root(("sh", "-s"), ASK_S, said=_ASK)
        heard = parse_heard(ended.stdout)
        waited = time.monotonic() - begun
        if heard.connected or waited >= limit_s:
            return heard
        progress(f"{waited:.0f} s: {heard.reason or 'the agent has not called yet'}")
        time.sleep(EVERY_S)


def parse_heard(text: str) -> Heard:
    """Pure."""
    said = [line.partition("=")[2] for line in text.splitlines() if line.startswith("said=")]
    link = next((line.partition("=")[2] for line in text.splitlines() if line.startswith("link=")), "")
    state = next((line.partition("=")[2] for line in text.splitlines() if line.startswith("state=")), "")
    if " INFO connected " in link:
        return Heard(connected=state == "active", reason="" if state == "active" else f"its unit is {state}")
    if found := _REASON.search(link):
        return Heard(reason=_unquoted(found[1]))
    complaints = [line.removeprefix("llmgw: ") for line in said if line.startswith("llmgw: ")]
    told = (complaints or [""])[-1] or (last_words("\n".join(said)) if state != "active" else "")
    if state == "active" and not complaints:
        return Heard()
    return Heard(reason=f"the agent does not start: {told}" if told else f"its unit is {state or 'not known'}")


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        return text
