"""One option of llama-server's help: its definition line and its description.

In: `-c,    --ctx-size N                     size of …` and the lines below it.  Out: a `Flag`; `None` when that is no
definition.  Pure.
Rule: a value is called wrong only where llama-server refuses it too (tried on b10434); else the choices are open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

from llmgw_core.engine import ONE, SWITCH, Arity, Flag, FlagState

# Names stand one after another with a comma; short ones are padded. One blank stands before a hint, which is there
# exactly when a value is taken, and three or more (common/arg.cpp: to column 40) before the description.
_NAME = r"--?[A-Za-z0-9][\w.-]*"
_LINE = re.compile(rf"(?P<names>{_NAME}(?:, +{_NAME})*)(?: (?P<hint>\S.*?))?(?:  +(?P<description>\S.*))?$")
_NAMES = re.compile(rf"{_NAME}(?:, +{_NAME})*")
_TWO_VALUES = re.compile(r"[A-Z][A-Z0-9_]* [A-Z][A-Z0-9_]*")
_ONE_VALUE = re.compile(r"(?:[^\s<]|<[^<>]*>)+")

_BRACKETED = re.compile(r"[\[{<](\w[\w.+-]*(?:[|,]\w[\w.+-]*)+)[\]}>]")
_COMMA_LIST = re.compile(r"[a-z0-9-]+(?:,[a-z0-9-]+)+")
_ALLOWED = re.compile(r"allowed values: ([\w, ]+)(\(?)")
_BULLET = re.compile(r"- ([\w.+-]+)(?: \(default\))?:")

# b10434, run: `-fa 1`, `-fa enabled`, `--fit true`, `--log-colors -1` are accepted; `-fa foo` and `--fit auto` are not.
_SYNONYMS = {"on": ("enabled", "true", "1"), "off": ("disabled", "false", "0"), "auto": ("-1",)}

_REMOVED = "the argument has been removed"
_DEPRECATED = "DEPRECATED"
_ENVIRONMENT = re.compile(r" *\(env: \w+\)")
_REPLACEMENT = re.compile(r"(?<![\w-])--[a-z][a-z0-9*-]*[a-z0-9]")


@frozen
class _Values:
    choices: tuple[str, ...] = ()
    open: bool = False
    listed: bool = False


def read_option(line: str, below: Sequence[str]) -> Flag | None:
    match = _LINE.match(line)
    arity = _read_arity(match["hint"]) if match else None
    if match is None or arity is None:
        return None
    description = [match["description"], *below] if match["description"] else list(below)
    values = _read_values(match["hint"] or "", description)
    said = _ENVIRONMENT.sub("", " ".join(filter(None, description)))
    state = _read_state(said)
    return Flag(
        names=tuple(re.split(", +", match["names"])),
        arity=arity,
        choices=values.choices,
        open_choices=values.open,
        listed_value=values.listed,
        state=state,
        note="" if state is FlagState.LIVE else said,
        replaced_by=_read_replacements(said, state),
    )


def unreadable_option(line: str) -> Flag:
    """The names with which a line begins that is no definition, in doubt."""
    match = _NAMES.match(line)
    return Flag(tuple(re.split(", +", match[0] if match else line)), doubt="its line cannot be read")


def _read_arity(hint: str | None) -> Arity | None:
    """`None`: these words are no hint, so the line is no definition. `[on|off]` is required all the same."""
    if hint is None:
        return SWITCH
    if _TWO_VALUES.fullmatch(hint):
        return Arity(2, 2)
    return ONE if _ONE_VALUE.fullmatch(hint) else None


def _read_values(hint: str, description: Sequence[str]) -> _Values:
    bracketed = _BRACKETED.fullmatch(hint)
    if bracketed:
        return _read_bracketed(re.split("[|,]", bracketed[1]))
    if _COMMA_LIST.fullmatch(hint):  # --spec-type; `N0,N1,...` and `FNAME:SCALE,...` are not such lists
        return _Values(tuple(hint.split(",")), listed=True)
    allowed = _ALLOWED.search(" ".join(description))
    if allowed:
        return _Values(tuple(re.findall(r"\w+", allowed[1])), open=not allowed[2])  # `(default` ends the list
    # Open: --reasoning-format accepts `auto`, which none of its bullets names, and --verbosity any number.
    bullets = tuple(match[1] for part in description if (match := _BULLET.match(part)))
    return _Values(bullets, open=True) if hint and bullets else _Values()


def _read_bracketed(choices: Sequence[str]) -> _Values:
    if all(map(str.isdigit, choices)):  # `<0|1>` is read as any number: b10434 accepts `--cpu-strict 7`
        return _Values(tuple(choices), open=True)
    if set(choices) <= _SYNONYMS.keys():
        choices = [*choices, *(synonym for choice in choices for synonym in _SYNONYMS[choice])]
    return _Values(tuple(choices))


def _read_state(said: str) -> FlagState:
    if _REMOVED in said:
        return FlagState.REMOVED
    return FlagState.DEPRECATED if _DEPRECATED in said else FlagState.LIVE


def _read_replacements(said: str, state: FlagState) -> tuple[str, ...]:
    """`… removed. use --a or --b` and `DEPRECATED in favor of `--a`: …`."""
    if state is FlagState.LIVE:
        return ()
    _, _, advice = said.partition(_REMOVED if state is FlagState.REMOVED else "in favor of")
    if state is FlagState.DEPRECATED:
        advice = advice.partition(":")[0]
    return tuple(dict.fromkeys(_REPLACEMENT.findall(advice)))
