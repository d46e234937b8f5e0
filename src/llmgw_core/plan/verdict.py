"""What an engine would say to one use of a flag, by its own help.

In: a `Use`, the flag table, spelling and known renames.  Out: a verdict with a reason and suggestions.  Pure.
Rules: only exact names count; only a definition that can be trusted is judged by; a suggestion is a flag that this very
help documents, and never applied by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from llmgw_core.engine.flags import Flag, FlagState, FlagTable, Spelling
from llmgw_core.engine.info import Rename
from llmgw_core.plan.command_line import Use


class Verdict(Enum):
    ACCEPTED = "accepted"
    DEPRECATED = "deprecated"
    REMOVED = "removed"
    WRONG_ARITY = "wrong arity"
    BAD_CHOICE = "bad choice"
    ABBREVIATION = "abbreviation only"
    NOT_DOCUMENTED = "not documented"
    UNCHECKED = "unchecked"
    """Not in the text, which may have lost it; or there, without a definition that can be trusted."""

    @property
    def passes(self) -> bool:
        return self in (Verdict.ACCEPTED, Verdict.DEPRECATED)


@frozen
class Judgement:
    verdict: Verdict
    detail: str = ""
    suggestions: tuple[str, ...] = ()


def judge(use: Use, table: FlagTable, spelling: Spelling, renames: Sequence[Rename]) -> Judgement:
    """The verdict on one use."""
    if use.joined and not spelling.equals:
        return _joined_by_equals(use)
    if use.found is None:
        return _abbreviation(use) if use.abbreviates else _not_documented(use, table, renames)
    flag = use.found
    if not flag.is_defined:
        return Judgement(Verdict.UNCHECKED, flag.doubt or "named in the usage block only, which tells no more")
    if flag.state is FlagState.REMOVED:
        return Judgement(Verdict.REMOVED, flag.note or "the engine lists it as removed", _instead(use, table, renames))
    arity = _wrong_arity(use, flag, table, spelling)
    if arity:
        return Judgement(Verdict.WRONG_ARITY, arity)
    choice = _bad_choice(use, flag)
    if choice:
        return Judgement(Verdict.BAD_CHOICE, choice, flag.choices)
    if flag.state is FlagState.DEPRECATED:
        return Judgement(
            Verdict.DEPRECATED, flag.note or "the engine lists it as deprecated", _instead(use, table, renames)
        )
    return Judgement(Verdict.ACCEPTED)


def _joined_by_equals(use: Use) -> Judgement:
    apart = f"{use.written} {' '.join(use.values)}"
    return Judgement(Verdict.NOT_DOCUMENTED, "this engine does not accept --flag=value", (apart,))


def _abbreviation(use: Use) -> Judgement:
    names = [_full_name(use.written, flag) for flag in use.abbreviates]
    if len(names) > 1:
        detail = f"ambiguous: the engine refuses it, because {len(names)} of its flags begin so"
        return Judgement(Verdict.ABBREVIATION, detail, tuple(names[:5]))
    detail = f"works today as a beginning of {names[0]}, and no longer once another flag begins so"
    return Judgement(Verdict.ABBREVIATION, detail, tuple(names))


def _full_name(beginning: str, flag: Flag) -> str:
    """The spelling that begins so; the one that the engine itself would find."""
    return next((name for name in (*flag.names, *flag.hidden) if name.startswith(beginning)), flag.names[0])


def _wrong_arity(use: Use, flag: Flag, table: FlagTable, spelling: Spelling) -> str:
    takes = f"takes {flag.arity}" + (f" ({'|'.join(flag.choices)})" if 0 < len(flag.choices) <= 6 else "")
    if flag.arity.most == 0 and use.sub_flag:
        return f"{flag.names[0]} has no keys"
    if flag.arity.most == 0 and use.joined:
        return f"takes no value, and is given {use.values[0]!r}"
    swallowed = [value for value in use.values if spelling.swallows and _looks_like_flag(value, table)]
    if swallowed and not use.joined:
        return f"{takes}, and would swallow the next flag, {swallowed[0]}"
    if use.strays:
        return f"{takes}: {use.strays[0]!r} after it belongs to no flag"
    if not use.joined and len(use.values) < flag.arity.least:
        return f"{takes}, and is given {len(use.values) or 'none'}"
    return ""


def _looks_like_flag(value: str, table: FlagTable) -> bool:
    return table.documents(value) or (value.startswith("--") and len(value) > 2)


def _bad_choice(use: Use, flag: Flag) -> str:
    if not flag.choices or flag.open_choices or use.sub_flag:
        return ""
    parts = [part for value in use.values for part in (value.split(",") if flag.listed_value else (value,))]
    wrong = [part for part in parts if part not in flag.choices]
    return f"{wrong[0]!r} is not among its choices" if wrong else ""


def _not_documented(use: Use, table: FlagTable, renames: Sequence[Rename]) -> Judgement:
    name = use.written
    known = _rename_of(name, renames)
    instead = _instead(use, table, renames)
    if known is None:
        return Judgement(
            Verdict.NOT_DOCUMENTED, "this engine's help does not have it", instead or _nearest(name, table)
        )
    detail = f"gone by {known.gone_from}" if known.gone_from else "no version is known to have it"
    detail += f" ({known.source})"
    if known.flips:
        detail += "; what replaces it means the opposite"
    if known.note:
        detail += f"; {known.note}"
    if not known.new:
        return Judgement(Verdict.NOT_DOCUMENTED, f"{detail}; leave it out")
    return Judgement(Verdict.NOT_DOCUMENTED, detail, instead or _nearest(name, table))


def _instead(use: Use, table: FlagTable, renames: Sequence[Rename]) -> tuple[str, ...]:
    """What to write instead, as far as this help documents it; a chain of renames is followed to its documented end."""
    own = use.found.replaced_by if use.found else ()
    found = [flag for flag in own if table.documents(flag)]
    queue = [*own, use.written]
    seen: set[str] = set()
    while queue:
        name = queue.pop(0)
        rename = _rename_of(name, renames)
        if rename is None or name in seen:
            continue
        seen.add(name)
        for argument in rename.new:
            flag = argument.split(" ", 1)[0].split("=", 1)[0]
            if table.documents(flag):
                found.append(argument)
            else:
                queue.append(flag)
    whole = {argument.split(" ", 1)[0] for argument in found if " " in argument}
    return tuple(argument for argument in dict.fromkeys(found) if argument not in whole)


def _rename_of(name: str, renames: Sequence[Rename]) -> Rename | None:
    return next((rename for rename in renames if rename.old == name), None)


def _nearest(name: str, table: FlagTable) -> tuple[str, ...]:
    from difflib import get_close_matches  # only a finding needs it

    alike = [other for other in table.names if other.startswith("--") == name.startswith("--")]
    longer = [other for other in alike if other.startswith(f"{name}-")]
    return tuple(dict.fromkeys([*longer[:2], *get_close_matches(name, alike, n=3, cutoff=0.75)]))[:3]
