"""Find engine plugins, load them one by one, refuse with a reason, and narrow each hook to one engine.

An engine plugin registers under its engine's name in the entry-point group `llmgw.engines`, a site's plugin under any
name in `llmgw.site`. Rules: a refused plugin never takes anything else down; an engine's hook reaches that engine's
plugin and the site plugins' wrappers, never another engine; two distributions that provide one engine are both refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy
from attrs import frozen

from llmgw_core import hooks
from llmgw_core.engine import (
    ENGINE_API,
    Command,
    EngineInfo,
    Exit,
    Failure,
    FlagTable,
    Health,
    Probe,
    ReplicaSpec,
    Reply,
    Shard,
)
from llmgw_core.errors import ImpossibleReplica, LlmgwError, NotCompleteHelp, UnknownEngine

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENGINE_GROUP = "llmgw.engines"
SITE_GROUP = "llmgw.site"
SPOKEN_APIS = (ENGINE_API, ENGINE_API - 1)

T = TypeVar("T")
_log = logging.getLogger("llmgw.plugins")


@frozen
class LoadedPlugin:
    """An engine plugin that is in use."""

    info: EngineInfo
    distribution: str
    version: str


@frozen
class SitePlugin:
    name: str
    distribution: str
    version: str


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


class _Refusal(Exception):
    def __init__(self, why: str, way_out: str) -> None:
        self.why = why
        self.way_out = way_out
        super().__init__(why)


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
        installed = ", ".join(sorted(self.available)) or "none"
        return f"no engine plugin {engine!r} is installed (installed: {installed}); pip install llmgw-engine-{engine}"

    def widest_specs(self, engine: str) -> tuple[ReplicaSpec, ...]:
        return self._call(engine, "llmgw_widest_specs", tuple)

    def refusals(self, replica: ReplicaSpec) -> tuple[str, ...]:
        return self._call(replica.engine, "llmgw_refusals", tuple, replica=replica)

    def build_command(self, shard: Shard, flags: FlagTable | None = None) -> Command:
        """The shard's command; raises `ImpossibleReplica` with all of this engine's refusals."""
        refusals = self.refusals(shard.replica)
        if refusals:
            raise ImpossibleReplica(shard.replica.id, refusals)
        return self._call(shard.replica.engine, "llmgw_build_command", Command, shard=shard, flags=flags)

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
        return self._ask(shard.replica.engine, "llmgw_health_probe", Probe, shard=shard)

    def read_health(self, shard: Shard, reply: Reply) -> Health:
        return self._call(shard.replica.engine, "llmgw_read_health", Health, shard=shard, reply=reply)

    def explain_exit(self, engine: str, exit: Exit) -> Failure | None:
        return self._ask(engine, "llmgw_explain_exit", Failure, exit=exit)

    def announce(self, fact: object) -> None:
        """Tell every plugin that observes; one that raises is logged and stops nobody."""
        for name, plugin in self._manager.list_name_plugin():
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            try:
                self._manager.subset_hook_caller("llmgw_announce", others)(fact=fact)
            except Exception:
                _log.exception("observer failed", extra={"plugin": name})

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
        except Exception as error:
            raise PluginFailed(f"engine plugin {engine} failed in {hook}: {type(error).__name__}: {error}") from error
        if result is not None and not isinstance(result, gives):
            raise PluginFailed(f"engine plugin {engine} failed in {hook}: it gave {type(result).__name__}")
        return result


def load_engines(only: Collection[str] | None = None) -> Engines:
    """Load the installed plugins: all engines, or those named in `only`; site plugins always.

    Raises nothing: what cannot be used is in `Engines.refused`.
    """
    from importlib.metadata import entry_points  # not at the top: `llmgw --help` does not need it

    found = tuple(entry_points(group=ENGINE_GROUP))
    return load_entry_points(found, tuple(entry_points(group=SITE_GROUP)), only)


def load_entry_points(
    engines: Sequence[EntryPoint], site: Sequence[EntryPoint] = (), only: Collection[str] | None = None
) -> Engines:
    """As `load_engines`, from given entry points."""
    manager = pluggy.PluginManager("llmgw")
    manager.add_hookspecs(hooks)
    refused: list[RefusedPlugin] = []
    loaded: list[LoadedPlugin] = []
    for entry in sorted(engines, key=lambda entry: (entry.name, _distribution(entry))):
        if only is not None and entry.name not in only:
            continue
        try:
            _refuse_duplicate(entry, engines)
            loaded.append(LoadedPlugin(_load_engine(manager, entry), *_provenance(entry)))
        except _Refusal as refusal:
            refused.append(RefusedPlugin(entry.name, *_provenance(entry), refusal.why, refusal.way_out))
    wrapping: list[SitePlugin] = []
    for entry in site:
        try:
            _load_site(manager, entry)
            wrapping.append(SitePlugin(entry.name, *_provenance(entry)))
        except _Refusal as refusal:
            refused.append(RefusedPlugin(entry.name, *_provenance(entry), refusal.why, refusal.way_out))
    return Engines(manager, loaded, wrapping, refused, {entry.name for entry in engines})


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "unknown distribution"


def _provenance(entry: EntryPoint) -> tuple[str, str]:
    return _distribution(entry), entry.dist.version if entry.dist else "unknown version"


def _refuse_duplicate(entry: EntryPoint, engines: Iterable[EntryPoint]) -> None:
    others = sorted(_distribution(other) for other in engines if other.name == entry.name and other != entry)
    if others:
        raise _Refusal(f"{', '.join(others)} provides this engine too", "uninstall all but one of them")


def _load_engine(manager: pluggy.PluginManager, entry: EntryPoint) -> EngineInfo:
    plugin = _import(entry)
    info = _read_info(plugin, entry)
    _register(manager, plugin, entry)
    missing = sorted(_engine_hooks() - {caller.name for caller in manager.get_hookcallers(plugin) or ()})
    if missing:
        manager.unregister(plugin)
        raise _Refusal(f"it does not implement {', '.join(missing)}", _another_release(entry))
    return info


def _import(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        why = f"importing {entry.value} failed: {type(error).__name__}: {error}"
        raise _Refusal(why, f"reinstall or uninstall {_distribution(entry)}") from error


def _read_info(plugin: object, entry: EntryPoint) -> EngineInfo:
    try:
        info = plugin.llmgw_engine_info()  # type: ignore[attr-defined]
    except Exception as error:
        why = f"its llmgw_engine_info failed: {type(error).__name__}: {error}"
        raise _Refusal(why, _another_release(entry)) from error
    if not isinstance(info, EngineInfo):
        raise _Refusal(f"its llmgw_engine_info gave {type(info).__name__}", _another_release(entry))
    if info.api not in SPOKEN_APIS:
        raise _Refusal(f"speaks engine API {info.api}, this core speaks {ENGINE_API}", _another_release(entry))
    if info.name != entry.name:
        raise _Refusal(f"it calls its engine {info.name!r}", "its entry point must have the engine's name")
    return info


def _another_release(entry: EntryPoint) -> str:
    from importlib.metadata import version

    return f"install a release of {_distribution(entry)} made for llmgw-core {version('llmgw-core')}"


def _register(manager: pluggy.PluginManager, plugin: object, entry: EntryPoint) -> None:
    try:
        manager.register(plugin, name=entry.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.is_registered(plugin):
            manager.unregister(plugin)
        raise _Refusal(" ".join(str(error).split()), _another_release(entry)) from error


def _engine_hooks() -> set[str]:
    return {name for name in vars(hooks) if name.startswith("llmgw_")} - {"llmgw_announce"}


def _load_site(manager: pluggy.PluginManager, entry: EntryPoint) -> None:
    plugin = _import(entry)
    name = f"site:{entry.name}"
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.is_registered(plugin):
            manager.unregister(plugin)
        raise _Refusal(" ".join(str(error).split()), _another_release(entry)) from error
    answering = sorted(
        caller.name
        for caller in manager.get_hookcallers(plugin) or ()
        for implementation in caller.get_hookimpls()
        if implementation.plugin is plugin and not implementation.wrapper and caller.name != "llmgw_announce"
    )
    if answering:
        manager.unregister(plugin)
        why = f"it answers {', '.join(answering)} in an engine's place"
        raise _Refusal(why, "a site plugin implements an engine's hooks with wrapper=True")
