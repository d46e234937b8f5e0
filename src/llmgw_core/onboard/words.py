"""What ssh says when it fails, with the way out.

In: what it printed.  Out: one line.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from llmgw_core.onboard.known_hosts import forget_command
from llmgw_core.onboard.request import Login
from llmgw_core.provision.words import last_words

SSH_FAILED = 255
"""ssh(1): its exit code when it, and not the command, failed."""

_CHANGED = re.compile(
    r"REMOTE HOST IDENTIFICATION HAS CHANGED|requested strict checking|host key .* revoked", re.IGNORECASE
)
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
# What stands before the last word of ssh's, and says more than that.
_BEFORE = (
    (r"unprotected private key|bad permissions", "its file is open to others, and ssh leaves it out: chmod 600 it"),
    (r"identity file .* not accessible|no such identity", "--ssh-identity names no file that can be read"),
)
_WAYS = (
    (
        r"permission denied",
        "it takes no key of ours for that user: put a public key into its ~/.ssh/authorized_keys there, or name "
        "another --ssh-user or --ssh-identity (a key with a password must be in ssh-agent)",
    ),
    (r"connection refused", "nothing listens there: is sshd started? is it another --ssh-port?"),
    (r"timed out|no route to host|network is unreachable", "it does not answer: is it on? is --addr right?"),
    (r"could not resolve hostname", "no such name is known here: give its address"),
    (
        r"kex_exchange_identification|connection (?:closed|reset)|broken pipe",
        "it closed the connection: is that sshd? does it let this host in (/etc/hosts.deny, MaxStartups, a firewall)?",
    ),
    (r"administratively|account is not available|account (?:has )?expired", "that login may run no commands there"),
)


def explain_ssh(login: Login, output: str, known_hosts: str) -> str:
    """Why there is no connection."""
    if _CHANGED.search(output):
        return _explain_changed(login, output, known_hosts)
    said = last_words(_without_banner(output))
    # ssh's own last words first: a host's banner may hold any words.
    ways = (*_ways(_BEFORE, output), *_ways(_WAYS, said), *_ways(_WAYS, output))
    way = (*ways, "")[0]
    told = f"ssh does not reach {login.user} at {login.known_name}" + (f": {said}" if said else "")
    return f"{told}; {way}" if way else told


def explain_ended(login: Login, output: str) -> str:
    """Why there is no connection any more."""
    said = last_words(_without_banner(output))
    told = f" ({said})" if said else ""
    return (
        f"the connection to {login.user} at {login.known_name} has ended in the middle{told}: did the machine restart, "
        "or the network fail?"
    )


def _ways(ways: Iterable[tuple[str, str]], text: str) -> Iterator[str]:
    return (way for pattern, way in ways if re.search(pattern, text, re.IGNORECASE))


def _explain_changed(login: Login, output: str, known_hosts: str) -> str:
    found = _FINGERPRINT.search(output)
    shows = f" (it shows {found[0]})" if found else ""
    return (
        f"the host key of {login.known_name} is another than the one that is known{shows}: either the machine was "
        "installed anew, or somebody stands between. Nothing was sent there, and no certificate was issued. If you "
        f"know why it changed: {forget_command(login.known_name, known_hosts)}"
    )


def _without_banner(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if not line.startswith(("Warning: Permanently added", "**")))
