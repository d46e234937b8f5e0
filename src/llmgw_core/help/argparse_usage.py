"""The usage block of an argparse program: the options that it names.

In: the lines from `usage:` on.  Out: the options in order, each with its names and values.  Pure and total.
Rules: an option that the end of the text broke is left out; a word inside choices is no option, nor is the `-m` with
which Python 3.14 writes the program's own name (`python3 -m package`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from llmgw_core.engine.flags import SWITCH
from llmgw_core.help.argparse_option import Taken, read_metavar

# An option stands at the beginning of an item, which a blank or an opening bracket precedes; choices have no blanks.
_OPTION = re.compile(r"(?<![^\s\[(])--?[A-Za-z0-9?][^\s\[\](){}|,=]*")
_PROGRAM = re.compile(r"(?:\s*\S*py\S* -m \S+)?[^\[({]*?(?=\s-|[\[({]|$)")
_BRACKET = re.compile(r"[\[\](){}]")


@frozen
class UsedOption:
    """An option as the usage block writes it: its first name, or both of a pair."""

    names: tuple[str, ...]
    taken: Taken


@frozen
class Usage:
    program: str
    """What it calls the program, with the words that stand before the options."""
    options: tuple[UsedOption, ...]
    subcommands: bool
    """Whether it ends in `{one,other} ...`: the real options belong to the subcommands."""


def read_usage(lines: str, ended: bool) -> Usage:
    """`lines`: the block without the word `usage:`. `ended`: whether something follows it in the text."""
    text = " ".join(lines.split())
    subcommands = re.search(r"\{[^{}]*\} \.\.\.$", text) is not None
    program = _PROGRAM.match(text)
    at = program.end() if program else 0
    items = _items(text[at:] if ended else _whole(text[at:]))
    return Usage(text[:at].strip(), tuple(_pairs(items)), subcommands)


def _whole(text: str) -> str:
    """The text up to the last item that is surely whole: closed, and not a name whose value may be cut off."""
    depth, end = 0, 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in "[({" else -1
        if depth <= 0:
            depth, end = 0, match.end()
    return text[:end]


def _items(text: str) -> Iterator[tuple[str, str, bool]]:
    """Each option: its name, what follows it, and whether `|` joins it to the one before."""
    joined = False
    found = list(_OPTION.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=False):
        tail = text[match.end() : end]
        yield match[0], _metavar(tail), joined
        joined = tail.rstrip().endswith("|")


def _metavar(tail: str) -> str:
    """What belongs to the option: up to the bracket that closes its item, or to the next item."""
    depth = 0
    for match in _BRACKET.finditer(tail):
        depth += 1 if match[0] in "[({" else -1
        if depth < 0:
            return tail[: match.start()].strip(" |")
    return tail.strip(" |[(")


def _pairs(items: Iterator[tuple[str, str, bool]]) -> Iterator[UsedOption]:
    """`--a | --no-a` is one option; other alternatives are options of their own."""
    names: list[str] = []
    taken = Taken(SWITCH)
    for name, metavar, joined in items:
        # argparse's BooleanOptionalAction writes every spelling: `--a | --no-a | -x`.
        if names and joined and not metavar and taken.arity == SWITCH and f"--no-{names[0][2:]}" in (name, *names[1:2]):
            names.append(name)
            continue
        if names:
            yield UsedOption(tuple(names), taken)
        names, taken = [name], read_metavar(metavar)
    if names:
        yield UsedOption(tuple(names), taken)
