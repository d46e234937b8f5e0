"""The names of a GGUF file's parts.  Pure."""

from __future__ import annotations

import re

# llama.cpp, llama_split_path: "%s-%05d-of-%05d.gguf", numbers from 1.
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_MOST_PARTS = 20_000


def part_names(name: str) -> list[str]:
    """All parts that a part's name counts; else the name alone."""
    named = PART.fullmatch(name)
    if named is None:
        return [name]
    return [part_name(named, number) for number in range(1, min(int(named[3]), _MOST_PARTS) + 1)]


def part_name(named: re.Match[str], number: int) -> str:
    return f"{named[1]}-{number:05}-of-{named[3]}.gguf"
