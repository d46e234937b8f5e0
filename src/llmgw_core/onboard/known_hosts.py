"""The host keys that this authority knows: lines of a known_hosts file.  Pure.

Rule: names stand there in clear, one name and one key on a line, as this program writes them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shlex
from collections.abc import Iterable
from itertools import pairwise


def lines_of(text: str, name: str) -> tuple[str, ...]:
    """The lines about one host."""
    return tuple(line for line in text.splitlines() if name in line.split(" ", 1)[0].split(","))


def fingerprint_of(line: str) -> str:
    """`ED25519 SHA256:…`, as ssh-keygen prints it, of `NAME TYPE KEY` or `TYPE KEY`; empty: that is no key."""
    words = line.split()
    for kind, key in pairwise(words):
        if kind.startswith(("ssh-", "ecdsa-", "sk-")):
            try:
                digest = hashlib.sha256(base64.b64decode(key, validate=True)).digest()
            except (binascii.Error, ValueError):
                return ""
            return f"{_short(kind)} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
    return ""


def is_named(lines: Iterable[str], wanted: str) -> bool:
    """Whether one of the lines has the key that `--host-key` names: `SHA256:…`, or a whole public key."""
    given = fingerprint_of(wanted) or wanted.strip()
    return any(given.split()[-1:] == fingerprint_of(line).split()[-1:] for line in lines)


def is_key(wanted: str) -> bool:
    """Whether `--host-key` says something that can be one."""
    return bool(fingerprint_of(wanted)) or (wanted.startswith("SHA256:") and len(wanted.split()) == 1)


def with_lines(text: str, more: Iterable[str]) -> str:
    """The file's text with lines that it has not yet."""
    kept = text.splitlines()
    return "".join(f"{line}\n" for line in (*kept, *(line for line in more if line not in kept)))


def forget_command(name: str, file: str) -> str:
    """What an operator types once the change is explained."""
    return shlex.join(("ssh-keygen", "-R", name, "-f", file))


def _short(kind: str) -> str:
    words = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}
    return words.get(kind, "ECDSA" if kind.startswith("ecdsa-") else kind)
