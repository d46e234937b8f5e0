"""The host keys that this authority knows: lines of a known_hosts file.  Pure.

Rules: this program writes names in clear, one name and one key on a line; it reads all that sshd(8) lets stand there,
since a file of the operator's own may be named: a line that was overlooked would make a changed key a first contact.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import shlex
from collections.abc import Iterable
from itertools import pairwise

_HASHED = "|1|"


def lines_of(text: str, name: str) -> tuple[str, ...]:
    """The lines about one host."""
    return tuple(line for line in text.splitlines() if _is_about(line, name))


def _is_about(line: str, name: str) -> bool:
    """sshd(8), SSH_KNOWN_HOSTS FILE FORMAT: a marker may stand first; names are hashed, or patterns."""
    words = line.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    if not words or words[0].startswith("#"):
        return False
    if words[0].startswith(_HASHED):
        return _hashes(words[0], name)
    found = [(each.startswith("!"), _fits(each.removeprefix("!"), name)) for each in words[0].split(",")]
    return (False, True) in found and (True, True) not in found


def _hashes(hashed: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(each, validate=True) for each in hashed.removeprefix(_HASHED).split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)


def _fits(pattern: str, name: str) -> bool:
    plain = re.escape(pattern.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(plain, name) is not None


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
