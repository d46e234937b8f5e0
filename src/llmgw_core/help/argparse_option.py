"""One option of an argparse help text: its header line and what its description says of its state.

In: a header (`--x X, -s X`), a description.  Out: names, arity, choices; state, note, replacements.  Pure and total.
Rules: only the option's own state counts, never that of a value or of another option that the prose mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import frozen

from llmgw_core.engine.flags import ONE, SWITCH, Arity, FlagState
from llmgw_core.help.plain_text import shown

ZERO_OR_MORE = Arity(0, None)
ONE_OR_MORE = Arity(1, None)
OPTIONAL = Arity(0, 1)

_NAME = re.compile(r"--?[A-Za-z0-9?][^\s,\[\]{}()|=]*")
_BETWEEN_NAMES = re.compile(r", (?=-)")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@frozen
class Taken:
    """What an option takes: how many values, and which."""

    arity: Arity
    choices: tuple[str, ...] = ()
    open_choices: bool = False


def read_header(header: str) -> tuple[tuple[str, ...], Taken] | None:
    """Names and values of `--x X, -s X` (up to Python 3.12) or `--x, -s X` (3.13); `None`: no option's header."""
    names = []
    metavar = ""
    for part in _BETWEEN_NAMES.split(header):
        match = _NAME.match(part)
        if match is None:
            return None
        names.append(match[0])
        metavar = part[match.end() :].strip() or metavar
    return tuple(names), read_metavar(metavar)


def read_metavar(metavar: str) -> Taken:
    """What stands after an option's name, as argparse writes it for each `nargs`."""
    if not metavar:
        return Taken(SWITCH)
    if metavar.startswith("["):
        return _read_bracketed(metavar)
    if metavar.startswith("{"):
        return _read_choices(metavar)
    if metavar.endswith("...]"):
        return Taken(ONE_OR_MORE)
    if metavar == "...":
        return Taken(ZERO_OR_MORE)
    words = metavar.split()
    # nargs=2 repeats the metavar; a metavar of several words (`<path to file>`) is one value all the same.
    count = len(words) if len(set(words)) == 1 or metavar.isupper() else 1
    return Taken(ONE if count == 1 else Arity(count, count))


def _read_bracketed(metavar: str) -> Taken:
    if metavar[1:2] in ("'", '"'):
        # vLLM writes known values as a Python list where a plugin may add more.
        return Taken(ONE, tuple(one or other for one, other in _QUOTED.findall(metavar)), open_choices=True)
    inner = metavar[1:-1] if metavar.endswith("]") else metavar[1:]
    many = inner.endswith(("...", "...]"))
    choices = _read_choices(inner).choices if inner.startswith("{") else ()
    return Taken(ZERO_OR_MORE if many else OPTIONAL, choices)


def _read_choices(metavar: str) -> Taken:
    listed, closed, rest = metavar[1:].partition("}")
    rest = rest.strip()
    arity = ONE_OR_MORE if rest.endswith("...]") else ONE
    is_open = not closed or (bool(rest) and not rest.startswith("["))
    return Taken(arity, tuple(listed.split(",")), open_choices=is_open)


@frozen
class State:
    state: FlagState = FlagState.LIVE
    note: str = ""
    replaced_by: tuple[str, ...] = ()


_LIVE = State()
_HINT = re.compile(r"deprecat|removed|no longer|no effect", re.IGNORECASE)
_FLAG = r"--[A-Za-z0-9](?:[\w.-]*\w)?(?:-\{[\w,]+\})?"
_OPENING = re.compile(r"[\[(]?(deprecated)\b|(removed)\.", re.IGNORECASE)
_ITSELF = re.compile(
    r"(?:(?:^|[.:] )(?:(?:note|warning): )?(?:the )?[`'\"]?(?P<name>-[\w-]+)[`'\"]?(?: (?:flag|option|parameter))?"
    r"|(?:this|the) (?:parameter|option|argument|flag|field|setting))"
    r" (?:(?:is|has been) (?:now )?(?P<what>deprecated|removed|no longer supported)|has no effect[,.])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!])\s+(?=[A-Z`'\"(-])")
_REPLACEMENT = re.compile(
    rf"\b(?:use|set|pass|alias for|in favou?r of|replaced by)\s+[`'\"]*{_FLAG}"
    rf"(?:[`'\"]*,?\s+(?:or|and)\s+[`'\"]*{_FLAG})*",
    re.IGNORECASE,
)
_LONGEST_NOTE = 400
_BRACES = re.compile(r"(.*-)\{([\w,]+)\}")


def read_state(description: Sequence[str], names: Sequence[str]) -> State:
    """Whether an option is said to be deprecated or removed, from the lines of its description."""
    if not any(map(_HINT.search, description)):
        return _LIVE
    text = join_wrapped(description)
    opening = _OPENING.match(text)
    if opening:
        state = FlagState.REMOVED if opening[2] else FlagState.DEPRECATED
        return _said(state, text, names)
    for match in _ITSELF.finditer(text):
        if match["name"] is None or match["name"] in names:
            gone = (match["what"] or "").lower() in ("removed", "no longer supported")
            return _said(
                FlagState.REMOVED if gone else FlagState.DEPRECATED, text[match.start() :].lstrip(".: "), names
            )
    return _LIVE


def join_wrapped(lines: Sequence[str]) -> str:
    """The lines as one, with the words whole that textwrap broke after a hyphen (`--cuda-` / `graph`)."""
    joined = " ".join(" ".join(lines).split())
    return re.sub(r"(?<=\S)- (?=[\w{])", "-", joined) if "- " in joined else joined


def _said(state: FlagState, text: str, names: Sequence[str]) -> State:
    note = _note(text)
    return State(state, note, tuple(dict.fromkeys(flag for flag in _replacements(note) if flag not in names)))


def _note(text: str) -> str:
    """The sentence that says it, and the next one too where that names the way out."""
    sentences = _SENTENCE_END.split(text, maxsplit=2)
    said = sentences[0]
    if len(sentences) > 1 and re.search(r"\b(use|set|please|alias)\b", sentences[1], re.IGNORECASE):
        said = f"{said} {sentences[1]}"
    said = said.partition("(default: ")[0].rstrip()
    if said.endswith("-"):
        # A word that ends in a hyphen was broken off by the end of the text: it must not pass for a flag's name.
        said = said.rpartition(" ")[0]
    return shown(said, _LONGEST_NOTE)


def _replacements(note: str) -> Iterator[str]:
    for match in _REPLACEMENT.finditer(note):
        if note[: match.start()].rstrip().endswith("instead of"):
            continue
        for written in re.findall(_FLAG, match[0]):
            braces = _BRACES.fullmatch(written)
            yield from (braces[1] + part for part in braces[2].split(",")) if braces else (written,)
