"""`llmgw ctl engine-check`: the options, and from them the material that the check is made of."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from llmgw_core.cli.engine_report import exit_code, render_json, render_report, render_versions, with_way_out
from llmgw_core.cli.output import show
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw_core.checking import NamedProfile
    from llmgw_core.engines import Engines
    from llmgw_core.model.catalog import Catalog
    from llmgw_core.plan.engine_check import EngineReport

COMMAND_LINE = "command line"
"""The profile name of arguments that are given after `--`."""
LEAST_TIMEOUT_S = 0.1
MOST_TIMEOUT_S = 86_400.0
LONGEST_PATH = 4096
TEXT_LIMIT_BYTES = 4 * 1024 * 1024
"""Of a given text; the largest help known is 0.2 MB."""


@frozen
class Options:
    """What the command was asked."""

    engine: str | None
    extra_args: tuple[str, ...]
    every_engine: bool
    executable: str | None
    worker_executable: str | None
    help_output: str | None
    worker_help_output: str | None
    engine_version: str | None
    every_version: bool
    catalog: str | None
    profile: tuple[str, ...]
    profiles_only: bool
    dry_run: bool
    timeout: float
    node: str | None
    every_node: bool
    as_json: bool
    verbose: bool


@click.command(epilog="Exit codes: 0 all accepted (warnings allowed), 1 findings, 2 could not check.")
@click.argument("engine", required=False)
@click.argument("extra_args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@click.option("--all", "every_engine", is_flag=True, help="Check every engine that a plugin is loaded for.")
@click.option("--executable", metavar="COMMAND", help="The engine's program, a path or a quoted command line.")
@click.option("--worker-executable", metavar="COMMAND", help="The workers' program, where the engine has one.")
@click.option("--help-output", metavar="TEXT|@FILE|-", help="Judge by this help text; run nothing.")
@click.option("--worker-help-output", metavar="TEXT|@FILE|-", help="The help text of the workers' program.")
@click.option("--engine-version", metavar="VERSION", help="Judge by the recorded flags of that version; run nothing.")
@click.option("--all-versions", "every_version", is_flag=True, help="A table over all recorded versions.")
@click.option("--catalog", metavar="FILE", help="Check the profiles of this catalog too, extra arguments included.")
@click.option("--profile", multiple=True, metavar="NAME", help="Only this profile of the catalog. May be repeated.")
@click.option("--profiles-only", is_flag=True, help="Judge the profiles, and not the widest command.")
@click.option("--dry-run", is_flag=True, help="Ask the engine itself too, where it can validate and start nothing.")
@click.option("--timeout", type=float, default=300.0, show_default=True, metavar="SECONDS", help="For one command.")
@click.option("--node", metavar="NODE", help="Let that node's agent check the engine that it has, now.")
@click.option("--all-nodes", "every_node", is_flag=True, help="The same on every node that is online; shows drift.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, or a list for several engines or nodes.")
@click.option("-v", "--verbose", is_flag=True, help="Show the accepted flags too.")
@click.pass_context
def engine_check(click_context: click.Context, /, **given: object) -> None:
    """Say whether ENGINE still accepts every flag that llmgw would pass, without a GPU and before a model load.

    Arguments after `--` are judged as a profile's extra arguments would be.
    """
    options = Options(**given)  # type: ignore[arg-type]
    _refuse_contradictions(options)
    if options.node is not None or options.every_node:
        sys.exit(_check_on_nodes(click_context, options))
    reports = _check(options)
    if options.as_json:
        show(render_json(reports, as_list=options.every_engine or options.every_version))
    elif options.every_version:
        show(render_versions(reports))
    else:
        show("\n\n".join(render_report(report, verbose=options.verbose) for report in reports))
    sys.exit(exit_code(reports))


def _refuse_contradictions(options: Options) -> None:
    ways = {
        "--help-output": options.help_output is not None,
        "--engine-version": options.engine_version is not None,
        "--all-versions": options.every_version,
        "--executable": options.executable is not None,
    }
    chosen = [name for name, given in ways.items() if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} say two different things about what to examine; give one")
    if not LEAST_TIMEOUT_S <= options.timeout <= MOST_TIMEOUT_S:
        raise click.UsageError(f"--timeout: expected {LEAST_TIMEOUT_S} to {MOST_TIMEOUT_S} seconds")
    if options.extra_args and not options.extra_args[0].startswith("-"):
        raise click.UsageError(f"{options.extra_args[0]!r}: name one engine; arguments to judge begin with a flag")
    if options.every_engine and (options.engine or chosen):
        raise click.UsageError(f"--all goes without {options.engine or chosen[0]}")
    if not options.every_engine and options.engine is None:
        raise click.UsageError("name an engine, or give --all (`llmgw engines` lists them)")
    if options.profile and options.catalog is None:
        raise click.UsageError("--profile needs --catalog")
    if options.worker_executable is not None and chosen not in ([], ["--executable"]):
        raise click.UsageError(f"--worker-executable runs a program, {chosen[0]} does not")
    if options.worker_help_output is not None and options.help_output is None:
        raise click.UsageError("--worker-help-output needs --help-output")
    if options.dry_run and chosen not in ([], ["--executable"]):
        raise click.UsageError(f"--dry-run runs the engine, {chosen[0]} does not")
    if options.profiles_only and options.catalog is None and not options.extra_args:
        raise click.UsageError("--profiles-only needs --catalog, or arguments after `--`")


def _refuse_on_nodes(click_context: click.Context, options: Options) -> None:
    """An agent checks the widest command by the engine that it has; nothing else can be asked of it."""
    asked = ("engine", "node", "every_node", "as_json", "verbose")
    chosen = "--node" if options.node is not None else "--all-nodes"
    for parameter in click_context.command.params:
        given = click_context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name not in asked:
            name = "arguments to judge" if isinstance(parameter, click.Argument) else parameter.opts[-1]
            raise click.UsageError(f"{chosen} goes without {name}: the agent judges the widest command, as it starts")
    if options.node is not None and options.every_node:
        raise click.UsageError("--node and --all-nodes say two different things; give one")


def _check_on_nodes(click_context: click.Context, options: Options) -> int:
    from llmgw_core.cli.fleet_check import check_all_nodes, check_node

    _refuse_on_nodes(click_context, options)
    how = {"as_json": options.as_json, "verbose": options.verbose}
    engine = options.engine or ""
    if options.node is not None:
        return check_node(click_context.obj, engine, options.node, **how)
    return check_all_nodes(click_context.obj, engine, **how)


def _check(options: Options) -> Sequence[EngineReport]:
    from llmgw_core.plugins import load_engines

    engines = load_engines(None if options.every_engine else {options.engine or ""})
    catalog = _catalog(options)
    reports = [
        evolve(report, warnings=(*report.warnings, *_unjudged(engines, report.engine, catalog, options.profile)))
        for report in _reports(engines, options)
    ]
    for report in reports:
        engines.announce(report)
    return reports


def _unjudged(engines: Engines, engine: str, catalog: Catalog | None, names: Sequence[str]) -> tuple[str, ...]:
    """What of a catalog was not judged though somebody may think so."""
    if catalog is None:
        return ()
    asked = {name: profile for name, profile in catalog.profiles.items() if not names or name in names}
    unknown = [
        f"profile {name} is for {profile.engine!r}, for which no plugin is installed; it was not checked"
        for name, profile in asked.items()
        if profile.engine not in engines.available
    ]
    none = [] if any(each.engine == engine for each in asked.values()) else [f"the catalog has no profile for {engine}"]
    return (*unknown, *none)


def _reports(engines: Engines, options: Options) -> Sequence[EngineReport]:
    if options.every_engine:
        return _check_installed(engines, _engines_to_check(engines, options), options)
    engine = options.engine or ""
    if len(engines.info(engine).programs) == 1 and (options.worker_executable or options.worker_help_output):
        raise click.UsageError(f"{engine} has one program for all roles: --worker-… is for engines with another")
    if options.help_output is None and not options.every_version and options.engine_version is None:
        return _check_installed(engines, [engine], options)
    return _check_recorded(engines, engine, options)


def _engines_to_check(engines: Engines, options: Options) -> list[str]:
    """All loaded engines; of these, with --profiles-only, those that have a profile."""
    catalog = _catalog(options)
    names = [plugin.info.name for plugin in engines.loaded]
    if catalog is None or not (options.profile or options.profiles_only):
        return names
    for name in options.profile:
        engines.info(catalog.profile(name).engine)
    wanted = {catalog.profile(name).engine for name in options.profile or catalog.profiles}
    return [name for name in names if name in wanted or not options.profiles_only]


def _check_recorded(engines: Engines, engine: str, options: Options) -> Sequence[EngineReport]:
    from llmgw_core import checking

    profiles = _profiles(options, engine, _catalog(options))
    if options.every_version:
        return checking.check_versions(engines, engine, profiles, widest=not (profiles or options.profiles_only))
    info = engines.info(engine)
    if options.help_output is not None:
        texts = {info.programs[0].name: read_text(options.help_output)}
        if options.worker_help_output is not None:
            texts[info.programs[-1].name] = read_text(options.worker_help_output)
        material = checking.read_given(engines, engine, texts, describe_text(options.help_output))
    else:
        material = checking.read_recorded(info, options.engine_version or "")
    return [checking.check_engine(engines, engine, material, profiles, widest=not options.profiles_only)]


def _check_installed(engines: Engines, names: Sequence[str], options: Options) -> Sequence[EngineReport]:
    import trio

    from llmgw_core.cli.signals import until_signalled
    from llmgw_core.examine.installed import Installation, check_installed

    catalog = _catalog(options)
    reports: dict[str, EngineReport] = {}

    async def check_one(name: str) -> None:
        where = Installation(_executables(engines, name, options), os.environ, options.timeout, options.dry_run)
        profiles = _profiles(options, name, catalog)
        reports[name] = await check_installed(engines, name, profiles, where, widest=not options.profiles_only)

    async def check_all() -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(check_one, name)

    trio.run(until_signalled, check_all)
    return [with_way_out(reports[name], "name it with --executable") for name in names]


def _executables(engines: Engines, engine: str, options: Options) -> dict[str, tuple[str, ...]]:
    from llmgw_core.examine.executable import parse_executable

    programs = engines.info(engine).programs
    given = ((programs[0].name, options.executable), (programs[-1].name, options.worker_executable))
    return {program: parse_executable(command) for program, command in given if command is not None}


def _catalog(options: Options) -> Catalog | None:
    if options.catalog is None:
        return None
    from llmgw_core.codec import parse_catalog

    return parse_catalog(_read_file(options.catalog), options.catalog, possible=False)


def _profiles(options: Options, engine: str, catalog: Catalog | None) -> tuple[NamedProfile, ...]:
    if catalog is None and not options.extra_args:
        return ()
    from llmgw_core.checking import NamedProfile, select_profiles
    from llmgw_core.model.catalog import Profile

    names = options.profile
    if catalog and options.every_engine:
        names = tuple(name for name in names if catalog.profile(name).engine == engine)
    named = select_profiles(catalog, engine, names) if catalog and (names or not options.profile) else ()
    if options.extra_args:
        named += (NamedProfile(COMMAND_LINE, Profile(engine=engine, extra_args=options.extra_args)),)
    if options.profiles_only and not named:
        raise LlmgwError(f"the catalog has no profile for {engine}, and --profiles-only judges nothing else")
    return named


def read_text(given: str) -> str:
    """A help text as it is given: the text itself, `@FILE`, or `-` for standard input."""
    if given.startswith("@"):
        return _read_file(given[1:])
    if given != "-":
        _refuse_forgotten_at(given)
        return given
    if sys.stdin is None:
        raise LlmgwError("cannot read standard input: it is closed")
    return _decode(sys.stdin.buffer.read(TEXT_LIMIT_BYTES + 1), "standard input")


def _refuse_forgotten_at(given: str) -> None:
    if "\n" not in given and len(given) < LONGEST_PATH and os.path.isfile(given):
        raise LlmgwError(f"{given!r} is a file: write --help-output @{given} to have it read")


def describe_text(given: str) -> str:
    """Where a given help text is from."""
    if given == "-":
        return "given on standard input"
    return f"file {given[1:]}" if given.startswith("@") else "given on the command line"


def _read_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return _decode(file.read(TEXT_LIMIT_BYTES + 1), path)
    except OSError as error:
        raise LlmgwError(f"cannot read {path}: {error.strerror}") from error


def _decode(content: bytes, name: str) -> str:
    """UTF-8, or what a byte order mark says (PowerShell's `>` writes UTF-16)."""
    if len(content) > TEXT_LIMIT_BYTES:
        raise LlmgwError(f"{name} is over {TEXT_LIMIT_BYTES // 1024 // 1024} MiB, which no help text is")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8-sig", errors="replace")
