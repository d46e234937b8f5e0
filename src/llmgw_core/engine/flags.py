"""What an engine's help says about its flags.

Rules: a flag's name includes its dashes (`-np` is not `--np`); a table keeps the order of the text, because where a
flag stands tells a removed flag from a text that was cut.
"""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen


@frozen
class Arity:
    """How many values follow a flag: from `least` to `most`; `None` is without end."""

    least: int
    most: int | None

    def __str__(self) -> str:
        if self.most == 0:
            return "no value"
        if self.least == self.most:
            return "one value" if self.least == 1 else f"{self.least} values"
        return f"{self.least} or more values" if self.most is None else f"{self.least} to {self.most} values"


SWITCH = Arity(0, 0)
ONE = Arity(1, 1)


class FlagState(Enum):
    LIVE = "live"
    DEPRECATED = "deprecated"
    """Accepted, with a warning or without effect."""
    REMOVED = "removed"
    """Still listed, refused when used."""
    UNSTATED = "unstated"
    """Named in the usage block only, where a state is not told."""


@frozen
class Flag:
    """One option with all its spellings."""

    names: tuple[str, ...]
    """Every listed spelling in the order of the text, negatives (`--no-x`) included."""
    arity: Arity = ONE
    choices: tuple[str, ...] = ()
    """The values that the text lists; empty when it lists none."""
    open_choices: bool = False
    """Whether a value outside `choices` may be accepted too."""
    listed_value: bool = False
    """Whether one value may be a comma-separated list, each part one of `choices`."""
    state: FlagState = FlagState.LIVE
    note: str = ""
    """What the engine says about a deprecated or removed flag, on one line. Not recorded in surfaces."""
    replaced_by: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Spellings that this engine accepts without listing them."""
    doubt: str = ""
    """Why this definition may not be as the engine printed it; then only the names count. Not recorded in surfaces."""

    @property
    def is_defined(self) -> bool:
        """Whether lines that can be trusted tell what the flag takes and whether it is still accepted."""
        return not self.doubt and self.state is not FlagState.UNSTATED


@frozen
class FlagTable:
    """The flags of one program, in the order of its help."""

    flags: tuple[Flag, ...]
    cuts: tuple[str, ...] = ()
    """Signs that the text may not be whole, a clause each ("its last lines are gone"). Empty: it shows none."""
    counted: bool = False
    """Whether the text names its options twice, so that one that it lost from its middle would show."""
    _by_name: dict[str, Flag] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        by_name: dict[str, Flag] = {}
        for flag in self.flags:
            for name in (*flag.names, *flag.hidden):
                by_name.setdefault(name, flag)
        object.__setattr__(self, "_by_name", by_name)

    def find(self, name: str) -> Flag | None:
        """The flag with exactly this spelling."""
        return self._by_name.get(name)

    def documents(self, name: str) -> bool:
        return name in self._by_name

    @property
    def names(self) -> tuple[str, ...]:
        """Every spelling, listed or hidden, in order."""
        return tuple(self._by_name)


@frozen
class Surface:
    """The recorded flags of one version of a program."""

    program: str
    version: str
    table: FlagTable


@frozen
class Spelling:
    """How a program's parser reads a command line."""

    underscore_is_dash: bool = False
    """`--max_model_len` is `--max-model-len`."""
    equals: bool = True
    """`--flag=value` is accepted."""
    dotted: bool = False
    """`--flag.key value` belongs to `--flag`."""
    abbreviates: bool = False
    """An unambiguous beginning of a long name is accepted (argparse)."""
    attached: bool = False
    """`-O3` is `-O 3`, for flags of one dash and one letter (argparse)."""
    swallows: bool = False
    """A flag that takes a value takes the next word, even one that begins with a dash (llama.cpp)."""
    positionals: int = 0
    """How many words without a flag the program takes, at the beginning."""
