"""What a plugin says about its engine before anything is run."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from llmgw_core.engine.flags import Spelling
from llmgw_core.model.replica import frozen_mapping

ENGINE_API = 1
"""The version of the plugin contract that this core speaks; it speaks the one before too."""


@frozen
class Program:
    """One of an engine's programs; most engines have one."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    """How it may be called when the operator does not say, the preferred first; first words are looked up in PATH."""
    spelling: Spelling = Spelling()  # noqa: RUF009 - frozen


@frozen
class Rename:
    """A flag that an engine renamed or dropped. A suggestion for people; nothing is ever rewritten by it."""

    old: str
    new: tuple[str, ...]
    """What to write instead, a whole argument each (`--load-mode none`); empty: leave the flag out."""
    gone_from: str
    """The first version that is known to refuse it; empty for one that never was, which people write all the same."""
    source: str
    flips: bool = False
    """Whether the new flag means the opposite of the old one."""
    note: str = ""


@frozen
class EngineInfo:
    name: str
    """The entry point's name."""
    api: int
    checked_versions: tuple[str, ...]
    """The engine versions whose help this plugin was checked against, oldest first."""
    programs: tuple[Program, ...]
    """The head's program first."""
    renames: tuple[Rename, ...] = ()
    surfaces: str | None = None
    """The package that holds `<program>-<version>.json`, one recorded flag table each."""
    own_flags: tuple[str, ...] = ()
    """Flags that say what is served and where; an operator's extra arguments may not set them."""
    ending_flags: tuple[str, ...] = ()
    """Flags that make the program print something and end; extra arguments may not have them either."""
    ignored_fields: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    """Fields (`settings.dtype`, `slot.interface`) that change nothing for this engine, each with the reason."""

    def program(self, name: str) -> Program:
        """The program of that name; KeyError when the engine has none such."""
        for program in self.programs:
            if program.name == name:
                return program
        raise KeyError(name)
