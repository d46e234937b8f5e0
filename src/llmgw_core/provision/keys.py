"""Reads an authorized_keys file's text.  Pure.

A line is a key when it holds a type and, after it, a blob that names the same type; options before and a comment after
are kept as they are.
"""

from __future__ import annotations

import base64
import binascii
import re
from itertools import pairwise

# sshd(8), AUTHORIZED_KEYS FILE FORMAT; options may hold spaces within double quotes.
_WORD = re.compile(r'(?:[^\s"]|"(?:\\.|[^"\\])*")+')
_TYPE = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9-]+(@openssh\.com)?")


def parse_authorized_keys(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The keys, each once, and the numbers of the lines that are neither a key nor empty nor a comment."""
    keys: dict[str, None] = {}
    no_keys = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if _is_key(stripped):
            keys[stripped] = None
        elif stripped and not stripped.startswith("#"):
            no_keys.append(number)
    return tuple(keys), tuple(no_keys)


def _is_key(line: str) -> bool:
    return any(_TYPE.fullmatch(kind) and _names(blob, kind) for kind, blob in pairwise(_WORD.findall(line)[:3]))


def _names(blob: str, kind: str) -> bool:
    """RFC 4253, 6.6: the blob begins with the type, as a string with its length."""
    try:
        raw = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return False
    return raw[4:].startswith(kind.encode()) and int.from_bytes(raw[:4], "big") == len(kind)
