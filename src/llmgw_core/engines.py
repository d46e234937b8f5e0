"""The loaded plugins, and each hook narrowed to one engine.

Rules: an engine's hook reaches that engine's plugin and the site plugins' wrappers, never another engine; what a hook
gives is of the type that the hook names, or the plugin has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

import pluggy
from attrs import frozen

from llmgw_core.engine import Command, EngineInfo, FlagTable, ReplicaSpec, Shard
from llmgw_core.errors import ImpossibleReplica, LlmgwError, NotCompleteHelp, UnknownEngine
from llmgw_core.plan.command_line import flags_in

if TYPE_CHECKING:
    from llmgw_core.engine import Exit, Failure, Health, Probe, Reply

T = TypeVar("T")


@frozen
class LoadedPlugin:
    """An engine plugin that is in use."""

    info: EngineInfo
    distribution: str
    version: str
    place: str = ""
    """Where it comes from: a wheel beside the file `llmgw`, inside that file, or a directory that pip filled."""
    built_from: str = ""
    """The tag and commit that it was built from, or `development`."""


@frozen
class SitePlugin:
    name: str
    distribution: str
    version: str
    place: str = ""


@frozen
class RefusedPlugin:
    """A plugin that is installed and not used."""

    name: str
    distribution: str
    version: str
    why: str
    way_out: str

    def __str__(self) -> str:
        return f"plugin {self.name} ({self.distribution} {self.version}) refused: {self.why}; {self.way_out}"


class PluginFailed(LlmgwError):
    """A plugin's hook raised, or gave what the hook does not give."""


class Engines:
    """The loaded plugins. Each method asks one engine's plugin; the site plugins' wrappers see the call too."""

    def __init__(
        self,
        manager: pluggy.PluginManager,
        loaded: Sequence[LoadedPlugin],
        site: Sequence[SitePlugin] = (),
        refused: Sequence[RefusedPlugin] = (),
        available: Collection[str] = (),
    ) -> None:
        self._manager = manager
        self.loaded = tuple(loaded)
        self.site = tuple(site)
        self.refused = tuple(refused)
        self.available = frozenset(available) | {plugin.info.name for plugin in loaded}
        """The names of all engine plugins that are installed, loaded or not."""

    def info(self, engine: str) -> EngineInfo:
        """What the plugin says of its engine; raises `UnknownEngine` with the reason and the way out."""
        for plugin in self.loaded:
            if plugin.info.name == engine:
                return plugin.info
        raise UnknownEngine(self._why_unknown(engine))

    def _why_unknown(self, engine: str) -> str:
        for refused in self.refused:
            if refused.name == engine:
                return f"engine {refused}"
        from difflib import get_close_matches

        installed = ", ".join(sorted(self.available)) or "none"
        alike = get_close_matches(engine.lower(), self.available, n=1)
        plain = engine.isidentifier() and engine.isascii() and engine.islower()
        install = f"; pip install llmgw-engine-{engine}" if plain else ""
        way = f"; did you mean {alike[0]}?" if alike else install
        return f"no engine plugin {engine!r} is installed (installed: {installed}){way}"

    def widest_specs(self, engine: str) -> tuple[ReplicaSpec, ...]:
        specs = self._call(engine, "llmgw_widest_specs", tuple)
        for spec in specs:
            if not isinstance(spec, ReplicaSpec) or spec.engine != engine:
                raise PluginFailed(
                    f"engine plugin {engine} failed in llmgw_widest_specs: {spec!r} is no replica of its"
                )
        return specs

    def refusals(self, replica: ReplicaSpec) -> tuple[str, ...]:
        """Why this engine cannot run the replica; empty when it can."""
        info = self.info(replica.engine)
        used, spelling = replica.extra_args, info.programs[0].spelling
        own = [f"set {flag}, which llmgw sets itself" for flag in flags_in(used, info.own_flags, spelling)]
        ending = [
            f"have {flag}, with which it only prints and ends" for flag in flags_in(used, info.ending_flags, spelling)
        ]
        clauses = tuple(f"its extra arguments {clause}" for clause in (*own, *ending))
        return (*clauses, *self._call(replica.engine, "llmgw_refusals", tuple, replica=replica))

    def build_command(self, shard: Shard, flags: FlagTable | None = None) -> Command:
        """The shard's command; raises `ImpossibleReplica` with all of this engine's refusals."""
        refusals = self.refusals(shard.replica)
        if refusals:
            raise ImpossibleReplica(shard.replica.id, refusals)
        command = self._call(shard.replica.engine, "llmgw_build_command", Command, shard=shard, flags=flags)
        fault = _fault(command, self.info(shard.replica.engine))
        if fault:
            raise PluginFailed(
                f"engine plugin {shard.replica.engine}, or a site's wrapper, built a bad command: {fault}"
            )
        return command

    def help_commands(self, engine: str, program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
        return self._call(engine, "llmgw_help_commands", tuple, program=program, executable=executable)

    def read_help(self, engine: str, program: str, text: str) -> FlagTable:
        """The flags that `text` documents; raises `NotCompleteHelp`."""
        return self._call(engine, "llmgw_read_help", FlagTable, program=program, text=text)

    def version_command(self, engine: str, program: str, executable: tuple[str, ...]) -> Command:
        return self._call(engine, "llmgw_version_command", Command, program=program, executable=executable)

    def read_version(self, engine: str, text: str) -> str | None:
        return self._ask(engine, "llmgw_read_version", str, text=text)

    def dry_run(self, engine: str, command: Command) -> Command | None:
        return self._ask(engine, "llmgw_dry_run", Command, command=command)

    def read_dry_run(self, engine: str, exit: Exit) -> tuple[str, ...] | None:
        return self._ask(engine, "llmgw_read_dry_run", tuple, exit=exit)

    def health_probe(self, shard: Shard) -> Probe | None:
        from llmgw_core.engine import Probe  # here and below: engine-check starts quicker without these

        return self._ask(shard.replica.engine, "llmgw_health_probe", Probe, shard=shard)

    def read_health(self, shard: Shard, reply: Reply) -> Health:
        from llmgw_core.engine import Health

        return self._call(shard.replica.engine, "llmgw_read_health", Health, shard=shard, reply=reply)

    def explain_exit(self, engine: str, exit: Exit) -> Failure | None:
        from llmgw_core.engine import Failure

        return self._ask(engine, "llmgw_explain_exit", Failure, exit=exit)

    def announce(self, fact: object) -> None:
        """Tell every plugin that observes; one that raises is logged and stops nobody."""
        for name, plugin in self._manager.list_name_plugin():
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            try:
                self._manager.subset_hook_caller("llmgw_announce", others)(fact=fact)
            except Exception:
                import logging

                logging.getLogger("llmgw.plugins").exception("observer failed", extra={"plugin": name})

    def _call(self, engine: str, hook: str, gives: type[T], **arguments: object) -> T:
        result = self._ask(engine, hook, gives, **arguments)
        if result is None:
            raise PluginFailed(f"engine plugin {engine} failed in {hook}: it gave nothing")
        return result

    def _ask(self, engine: str, hook: str, gives: type[T], **arguments: object) -> T | None:
        self.info(engine)
        others = [self._manager.get_plugin(plugin.info.name) for plugin in self.loaded if plugin.info.name != engine]
        try:
            result = self._manager.subset_hook_caller(hook, others)(**arguments)
        except (NotCompleteHelp, ImpossibleReplica):
            raise
        except (Exception, SystemExit) as error:
            raise PluginFailed(f"engine plugin {engine} failed in {hook}: {type(error).__name__}: {error}") from error
        if result is not None and not isinstance(result, gives):
            raise PluginFailed(f"engine plugin {engine} failed in {hook}: it gave {type(result).__name__}")
        return result


def _fault(command: Command, info: EngineInfo) -> str:
    """What makes a command one that nobody could run or judge; empty when nothing does."""
    if command.program not in {program.name for program in info.programs}:
        return f"its program {command.program!r} is none of the engine's (a wrapper belongs into `prefix`)"
    words: tuple[object, ...] = command.argv
    wrong = [word for word in words if not isinstance(word, str)]
    return f"{wrong[0]!r} in its arguments is no text" if wrong else ""
