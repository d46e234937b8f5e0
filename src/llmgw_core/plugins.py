"""Find the installed plugins, load them one by one, refuse with a reason.

An engine plugin registers under its engine's name in the entry-point group `llmgw.engines`, a site's plugin under any
name in `llmgw.site`. Rules: a refused plugin never takes anything else down; two distributions that provide one engine
are both refused, since nobody could say which one ran; a site plugin wraps an engine's hooks and never answers them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pluggy

from llmgw_core import hooks
from llmgw_core.built_from import built_from
from llmgw_core.engine import ENGINE_API, EngineInfo, Program
from llmgw_core.engines import Engines, LoadedPlugin, RefusedPlugin, SitePlugin
from llmgw_core.plugin_directory import Beside, put_before

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENGINE_GROUP = "llmgw.engines"
SITE_GROUP = "llmgw.site"
SPOKEN_APIS = tuple(range(max(1, ENGINE_API - 1), ENGINE_API + 1))
"""This version of the contract and the one before."""


class _Refusal(Exception):
    def __init__(self, why: str, way_out: str) -> None:
        self.why = why
        self.way_out = way_out
        super().__init__(why)


def load_engines(only: Collection[str] | None = None) -> Engines:
    """Load the installed plugins: all engines, or those named in `only`; site plugins always.

    Raises nothing: what cannot be used is in `Engines.refused`.
    """
    from importlib.metadata import entry_points  # not at the top: `llmgw --help` does not need it

    beside = put_before(os.environ)
    found = tuple(entry_points(group=ENGINE_GROUP))
    return load_entry_points(found, tuple(entry_points(group=SITE_GROUP)), only, beside)


def load_entry_points(
    engines: Sequence[EntryPoint],
    site: Sequence[EntryPoint] = (),
    only: Collection[str] | None = None,
    beside: Beside = Beside(),  # noqa: B008 - frozen
) -> Engines:
    """As `load_engines`, from given entry points."""
    manager = pluggy.PluginManager("llmgw")
    manager.add_hookspecs(hooks)
    refused = list(beside.refused)
    loaded: list[LoadedPlugin] = []
    for entry in sorted(engines, key=lambda entry: (entry.name, _distribution(entry))):
        if only is not None and entry.name not in only:
            continue
        try:
            _refuse_duplicate(entry, engines)
            info, place = _load_engine(manager, entry), beside.place_of(_root(entry))
            loaded.append(LoadedPlugin(info, *_provenance(entry), place, built_from(entry.module)))
        except _Refusal as refusal:
            refused.append(_refused(entry, refusal, beside))
    wrapping: list[SitePlugin] = []
    for entry in site:
        try:
            _load_site(manager, entry)
            wrapping.append(SitePlugin(entry.name, *_provenance(entry), beside.place_of(_root(entry))))
        except _Refusal as refusal:
            refused.append(_refused(entry, refusal, beside))
    return Engines(manager, loaded, wrapping, refused, {entry.name for entry in engines})


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "unknown distribution"


def _provenance(entry: EntryPoint) -> tuple[str, str]:
    return _distribution(entry), entry.dist.version if entry.dist else "unknown version"


def _root(entry: EntryPoint) -> str:
    """The directory that the distribution's modules lie in; empty where nobody knows."""
    return str(entry.dist.locate_file("")) if entry.dist else ""


def _refused(entry: EntryPoint, refusal: _Refusal, beside: Beside) -> RefusedPlugin:
    wheel = beside.wheels.get(_root(entry))
    way_out = f"remove {wheel}, or put another release of it there" if wheel else refusal.way_out
    return RefusedPlugin(entry.name, *_provenance(entry), refusal.why, way_out)


def _refuse_duplicate(entry: EntryPoint, engines: Iterable[EntryPoint]) -> None:
    others = sorted(_distribution(other) for other in engines if other.name == entry.name and other != entry)
    if others:
        raise _Refusal(f"{', '.join(others)} provides this engine too", "uninstall all but one of them")


def _load_engine(manager: pluggy.PluginManager, entry: EntryPoint) -> EngineInfo:
    plugin = _import(entry)
    info = _read_info(plugin, entry)
    _register(manager, plugin, entry.name, entry)
    missing = sorted(_engine_hooks() - {caller.name for caller in manager.get_hookcallers(plugin) or ()})
    if missing:
        manager.unregister(plugin)
        raise _Refusal(f"it does not implement {', '.join(missing)}", _another_release(entry))
    return info


def _import(entry: EntryPoint) -> object:
    try:
        with redirect_stdout(sys.stderr):  # what a plugin prints must not stand in a command's output
            return entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an extension module's panic is no Exception
        why = f"importing {entry.value} failed: {type(error).__name__}: {error}"
        raise _Refusal(why, f"reinstall or uninstall {_distribution(entry)}") from error


def _read_info(plugin: object, entry: EntryPoint) -> EngineInfo:
    try:
        info = plugin.llmgw_engine_info()  # type: ignore[attr-defined]
    except (Exception, SystemExit) as error:
        why = f"its llmgw_engine_info failed: {type(error).__name__}: {error}"
        raise _Refusal(why, _another_release(entry)) from error
    if not isinstance(info, EngineInfo):
        raise _Refusal(f"its llmgw_engine_info gave {type(info).__name__}", _another_release(entry))
    if info.api not in SPOKEN_APIS:
        raise _Refusal(f"speaks engine API {info.api}, this core speaks {ENGINE_API}", _another_release(entry))
    fault = _fault(info.programs, info.checked_versions)
    if fault:
        raise _Refusal(f"its llmgw_engine_info gave {fault}", _another_release(entry))
    if info.name != entry.name:
        raise _Refusal(f"it calls its engine {info.name!r}", "its entry point must have the engine's name")
    return info


def _fault(programs: object, versions: object) -> str:
    """What makes an engine info unusable; empty when nothing does."""
    if not isinstance(programs, tuple) or not programs or not all(isinstance(each, Program) for each in programs):
        return f"no programs: {programs!r}"
    if not isinstance(versions, tuple) or not all(isinstance(version, str) for version in versions):
        return f"checked versions that are no texts: {versions!r}"
    return ""


def _another_release(entry: EntryPoint) -> str:
    from importlib.metadata import version

    return f"install a release of {_distribution(entry)} made for llmgw-core {version('llmgw-core')}"


def _register(manager: pluggy.PluginManager, plugin: object, name: str, entry: EntryPoint) -> None:
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.is_registered(plugin):
            manager.unregister(plugin)
        raise _Refusal(" ".join(str(error).split()), _another_release(entry)) from error


def _engine_hooks() -> set[str]:
    return {name for name in vars(hooks) if name.startswith("llmgw_")} - {"llmgw_announce"}


def _load_site(manager: pluggy.PluginManager, entry: EntryPoint) -> None:
    plugin = _import(entry)
    _register(manager, plugin, f"site:{entry.name}", entry)
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
