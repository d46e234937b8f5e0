"""Which flags a command line uses, read the way the engine's own parser would read it.

In: arguments, the program's flag table and its spelling rules.  Out: one `Use` per flag, in order.  Pure and total.
Rules: a flag's name ends at the first `=`; what follows a flag belongs to it as its arity says; a number with a minus
sign is a value; a word that belongs to no flag is a stray of the flag before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve, frozen

from llmgw_core.engine.flags import Flag, FlagTable, Spelling

_NUMBER = re.compile(r"-(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?$")


@frozen
class Use:
    """One flag as it is used."""

    written: str
    """The flag as written, without a value joined to it."""
    found: Flag | None = None
    """The flag with that very name, as this engine spells names."""
    abbreviates: tuple[Flag, ...] = ()
    """Without `found`: the flags of which `written` is the beginning."""
    values: tuple[str, ...] = ()
    joined: bool = False
    """Whether the value was given as `--flag=value`."""
    sub_flag: bool = False
    """Whether `written` is `--flag.key`, of which `found` is `--flag`."""
    strays: tuple[str, ...] = ()
    """Words that follow and that no flag takes."""


def read_uses(args: Sequence[str], table: FlagTable, spelling: Spelling) -> tuple[Use, ...]:
    """Every flag that `args` uses; positional words that the program takes at the beginning are skipped."""
    uses: list[Use] = []
    at = _skip_positionals(args, spelling)
    while at < len(args):
        word = args[at]
        at += 1
        if _is_flag(word):
            use = _name(word, table, spelling)
            taken = 0 if use.joined else _taken(use, args[at:], spelling)
            uses.append(evolve(use, values=(*use.values, *args[at : at + taken])))
            at += taken
        elif uses:
            uses[-1] = evolve(uses[-1], strays=(*uses[-1].strays, word))
        else:
            uses.append(Use(word))
    return tuple(uses)


def flags_in(args: Sequence[str], wanted: Sequence[str], spelling: Spelling) -> tuple[str, ...]:
    """Those of the `wanted` flags that `args` have, in whatever spelling the program takes for them."""
    written = [_canonical(word.partition("=")[0], spelling) for word in args if _is_flag(word)]
    return tuple(flag for flag in wanted if flag in written)


def _skip_positionals(args: Sequence[str], spelling: Spelling) -> int:
    leading = 0
    while leading < min(spelling.positionals, len(args)) and not _is_flag(args[leading]):
        leading += 1
    return leading


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and " " not in word.split("=", 1)[0] and not _NUMBER.match(word)


def _name(word: str, table: FlagTable, spelling: Spelling) -> Use:
    exact = table.find(word)
    if exact:
        return Use(word, exact)
    written, joint, value = word.partition("=")
    use = _look_up(written, table, spelling)
    if joint:
        return evolve(use, values=(value,), joined=True)
    if use.found is None and spelling.attached and word[1] != "-" and len(word) > 2:
        short = table.find(word[:2])
        if short and short.arity.most != 0:
            return Use(word[:2], short, values=(word[2:],), joined=True)
    return use


def _look_up(written: str, table: FlagTable, spelling: Spelling) -> Use:
    name = _canonical(written, spelling)
    found = table.find(name)
    if found:
        return Use(written, found)
    base = name.partition(".")[0]
    if spelling.dotted and base != name and table.find(base):
        return Use(written, table.find(base), sub_flag=True)
    if spelling.abbreviates and name.startswith("--") and len(name) > 2:
        return Use(written, abbreviates=_beginning_with(name, table))
    return Use(written)


def _canonical(written: str, spelling: Spelling) -> str:
    if not spelling.underscore_is_dash or not written.startswith("--"):
        return written
    # vLLM turns `_` into `-` in the part before the first dot only: the keys after it are Python names.
    base, dot, key = written.partition(".")
    return base.replace("_", "-") + dot + key


def _beginning_with(beginning: str, table: FlagTable) -> tuple[Flag, ...]:
    return tuple(
        flag for flag in table.flags if any(name.startswith(beginning) for name in (*flag.names, *flag.hidden))
    )


def _taken(use: Use, rest: Sequence[str], spelling: Spelling) -> int:
    """How many of the words after a flag are its values."""
    flag = use.found or (use.abbreviates[0] if len(use.abbreviates) == 1 else None)
    if flag is not None and not flag.is_defined:
        flag = None
    most = len(rest) if flag is None or flag.arity.most is None else min(flag.arity.most, len(rest))
    if flag is not None and spelling.swallows:
        return most
    taken = 0
    while taken < most and not _is_flag(rest[taken]):
        taken += 1
    return taken
