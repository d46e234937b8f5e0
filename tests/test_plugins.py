"""Plugins are loaded one by one; what cannot be used is refused by name, and everything else goes on working."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmgw_core.engine import (
    ENGINE_API,
    Command,
    EngineInfo,
    Exit,
    Failure,
    FailureKind,
    Flag,
    FlagTable,
    Health,
    ImpossibleReplica,
    NotCompleteHelp,
    Phase,
    Probe,
    Program,
    Reply,
    ReplyKind,
)
from llmgw_core.engines import Engines, PluginFailed
from llmgw_core.errors import UnknownEngine
from llmgw_core.hooks import hookimpl
from llmgw_core.plugins import load_entry_points
from llmgw_core.testing.builders import a_replica

PROGRAM = Program("toy", (("toy",),))


class ToyEngine:
    """A whole engine plugin; a test replaces what it is about."""

    def __init__(self, name: str, **replaced: Any) -> None:
        self.name = name
        for hook, implementation in replaced.items():
            setattr(self, hook, implementation)

    @hookimpl
    def llmgw_engine_info(self) -> EngineInfo:
        return EngineInfo(self.name, ENGINE_API, ("1",), (Program(self.name, ((self.name,),)),))

    @hookimpl
    def llmgw_widest_specs(self) -> tuple[Any, ...]:
        return (a_replica(engine=self.name),)

    @hookimpl
    def llmgw_refusals(self, replica: Any) -> tuple[str, ...]:
        return ("it has a colon",) if ":" in replica.served_name else ()

    @hookimpl
    def llmgw_build_command(self, shard: Any) -> Command:
        return Command(self.name, shard.slot.executable, ("--model", shard.replica.source))

    @hookimpl
    def llmgw_help_commands(self, program: str, executable: tuple[str, ...]) -> tuple[Command, ...]:
        return (Command(program, executable, ("--help",)),)

    @hookimpl
    def llmgw_read_help(self, text: str) -> FlagTable:
        if not text:
            raise NotCompleteHelp("no help text")
        return FlagTable((Flag(("--model",)),))

    @hookimpl
    def llmgw_version_command(self, program: str, executable: tuple[str, ...]) -> Command:
        return Command(program, executable, ("--version",))

    @hookimpl
    def llmgw_read_version(self, text: str) -> str | None:
        return text or None

    @hookimpl
    def llmgw_dry_run(self, command: Command) -> Command | None:
        return None

    @hookimpl
    def llmgw_read_dry_run(self, exit: Exit) -> tuple[str, ...] | None:
        return None

    @hookimpl
    def llmgw_health_probe(self, shard: Any) -> Probe | None:
        return Probe(shard.slot.listen, "/health")

    @hookimpl
    def llmgw_read_health(self, shard: Any, reply: Reply) -> Health:
        return Health(Phase.READY if reply.kind is ReplyKind.ANSWERED else Phase.STARTING)

    @hookimpl
    def llmgw_explain_exit(self, exit: Exit) -> Failure | None:
        return None if exit.asked else Failure(FailureKind.CRASHED, str(exit))


class Wrapper:
    """A site's plugin: every command runs under numactl."""

    @hookimpl(wrapper=True)
    def llmgw_build_command(self) -> Iterator[None]:
        from attrs import evolve

        command = yield
        return evolve(command, prefix=("numactl", "--interleave=all"))  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("toy_"):
            del sys.modules[name]


def entry(name: str, plugin: Any, distribution: str | None = None, group: str = "llmgw.engines") -> EntryPoint:
    module = ModuleType(f"toy_{name}_{len(sys.modules)}")
    module.plugin = plugin  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    made = EntryPoint(name, f"{module.__name__}:plugin", group)
    name_of_it = distribution or f"llmgw-engine-{name}"
    dist = SimpleNamespace(name=name_of_it, version="1.2", locate_file=lambda path: f"/site/{path}")
    return made._for(dist)  # type: ignore[attr-defined,no-any-return]


def load(*entries: EntryPoint, site: tuple[EntryPoint, ...] = ()) -> Engines:
    return load_entry_points(entries, site)


def test_an_engine_is_loaded_with_its_provenance() -> None:
    loaded = load(entry("toy", ToyEngine("toy"))).loaded
    assert [(each.info.name, each.distribution, each.version) for each in loaded] == [
        ("toy", "llmgw-engine-toy", "1.2")
    ]


def test_a_call_reaches_the_asked_engine_only() -> None:
    engines = load(entry("one", ToyEngine("one")), entry("two", ToyEngine("two")))
    assert engines.build_command(a_replica(engine="one").shards[0]).program == "one"
    assert engines.build_command(a_replica(engine="two").shards[0]).program == "two"


def test_a_site_plugin_wraps_every_engine() -> None:
    engines = load(
        entry("one", ToyEngine("one")),
        entry("two", ToyEngine("two")),
        site=(entry("numa", Wrapper(), "acme-numa", "llmgw.site"),),
    )
    for name in ("one", "two"):
        command = engines.build_command(a_replica(engine=name).shards[0])
        assert command.argv == ("numactl", "--interleave=all", "engine", "--model", "/models/qwen3")
    assert [each.distribution for each in engines.site] == ["acme-numa"]


def test_a_site_plugin_that_answers_for_an_engine_is_refused() -> None:
    class Usurper:
        @hookimpl
        def llmgw_read_version(self) -> str:
            return "mine"

    engines = load(entry("toy", ToyEngine("toy")), site=(entry("usurper", Usurper(), "acme", "llmgw.site"),))
    assert engines.read_version("toy", "1.0") == "1.0"
    assert "answers llmgw_read_version in an engine's place" in engines.refused[0].why


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return hookimpl(fail)


def test_a_plugin_that_does_not_import_is_refused_and_the_others_work() -> None:
    broken = EntryPoint("broken", "no_such_module_anywhere", "llmgw.engines")
    engines = load(broken, entry("toy", ToyEngine("toy")))
    assert engines.info("toy").name == "toy"
    (refused,) = engines.refused
    assert (refused.name, refused.distribution) == ("broken", "unknown distribution")
    assert "No module named 'no_such_module_anywhere'" in refused.why
    with pytest.raises(UnknownEngine, match="importing no_such_module_anywhere failed"):
        engines.info("broken")


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (
            ToyEngine("toy", llmgw_engine_info=failing(RuntimeError("oops"))),
            "llmgw_engine_info failed: RuntimeError: oops",
        ),
        (ToyEngine("toy", llmgw_engine_info=lambda: 3), "llmgw_engine_info gave int"),
        (ToyEngine("other"), "it calls its engine 'other'"),
        (
            ToyEngine("toy", llmgw_engine_info=lambda: EngineInfo("toy", ENGINE_API + 1, ("1",), ())),
            f"speaks engine API {ENGINE_API + 1}, this core speaks {ENGINE_API}",
        ),
        (ToyEngine("toy", llmgw_engine_info=failing(SystemExit(0))), "llmgw_engine_info failed: SystemExit: 0"),
        (
            ToyEngine("toy", llmgw_engine_info=lambda: EngineInfo("toy", ENGINE_API, ("1",), ())),
            "gave no programs: ()",
        ),
        (
            ToyEngine("toy", llmgw_engine_info=lambda: EngineInfo("toy", ENGINE_API, None, (PROGRAM,))),  # type: ignore[arg-type]
            "gave checked versions that are no texts: None",
        ),
        (ToyEngine("toy", llmgw_read_help=None), "does not implement llmgw_read_help"),
        (ToyEngine("toy", llmgw_from_the_future=hookimpl(lambda: None)), "unknown hook 'llmgw_from_the_future'"),
        (ToyEngine("toy", llmgw_read_version=hookimpl(lambda speech: None)), "speech"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(plugin: ToyEngine, why: str) -> None:
    engines = load(entry("toy", plugin), entry("fine", ToyEngine("fine")))
    (refused,) = engines.refused
    assert why in refused.why
    assert refused.way_out
    assert str(refused).startswith("plugin toy (llmgw-engine-toy 1.2) refused: ")
    assert engines.read_version("fine", "1") == "1"


def test_two_distributions_of_one_engine_are_both_refused() -> None:
    engines = load(entry("toy", ToyEngine("toy"), "one"), entry("toy", ToyEngine("toy"), "two"))
    assert engines.loaded == ()
    assert {(each.distribution, each.why) for each in engines.refused} == {
        ("one", "two provides this engine too"),
        ("two", "one provides this engine too"),
    }


def test_an_unknown_engine_names_those_that_are_installed_and_the_way_out() -> None:
    with pytest.raises(UnknownEngine, match=r"installed: toy\); pip install llmgw-engine-mine"):
        load(entry("toy", ToyEngine("toy"))).info("mine")


def test_an_engines_refusals_make_a_replica_impossible() -> None:
    with pytest.raises(ImpossibleReplica, match="it has a colon"):
        load(entry("toy", ToyEngine("toy"))).build_command(a_replica(engine="toy", served_name="a:b").shards[0])


@pytest.mark.parametrize(
    "implementation",
    [failing(ZeroDivisionError("oops")), failing(SystemExit(0)), hookimpl(lambda: "a text"), hookimpl(lambda: None)],
)
def test_a_hook_that_fails_is_the_plugins_failure_by_name(implementation: Any) -> None:
    engines = load(entry("toy", ToyEngine("toy", llmgw_read_help=implementation)))
    with pytest.raises(PluginFailed, match="engine plugin toy failed in llmgw_read_help"):
        engines.read_help("toy", "toy", "text")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Command("docker", ("docker",), ()), "its program 'docker' is none of the engine's"),
        (Command("toy", ("toy",), ("--port", 80)), "80 in its arguments is no text"),  # type: ignore[arg-type]
    ],
)
def test_a_command_that_nobody_could_judge_is_a_failure(command: Command, why: str) -> None:
    engines = load(entry("toy", ToyEngine("toy", llmgw_build_command=hookimpl(lambda: command))))
    with pytest.raises(PluginFailed, match=why):
        engines.build_command(a_replica(engine="toy").shards[0])


def test_widest_specs_of_another_engine_are_a_failure() -> None:
    engines = load(entry("toy", ToyEngine("toy", llmgw_widest_specs=hookimpl(lambda: (a_replica(engine="x"),)))))
    with pytest.raises(PluginFailed, match="is no replica of its"):
        engines.widest_specs("toy")


def test_what_a_plugin_prints_at_import_is_not_in_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    class Loud(EntryPoint):
        def load(self) -> Any:
            print("NOISE")
            return ToyEngine("toy")

    assert load(Loud("toy", "x", "llmgw.engines")).loaded
    assert capsys.readouterr().out == ""


def test_a_panic_at_import_refuses_the_plugin_only() -> None:
    class Panic(BaseException):
        pass

    class Panicking(EntryPoint):
        def load(self) -> Any:
            raise Panic("oops")

    engines = load(Panicking("toy", "x", "llmgw.engines"), entry("fine", ToyEngine("fine")))
    assert "Panic: oops" in engines.refused[0].why
    assert engines.info("fine").name == "fine"


def test_an_unreadable_help_is_not_the_plugins_failure() -> None:
    with pytest.raises(NotCompleteHelp):
        load(entry("toy", ToyEngine("toy"))).read_help("toy", "toy", "")


def test_an_observer_that_raises_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    deaf = ToyEngine("deaf", llmgw_announce=failing(RuntimeError("oops")))
    watching = ToyEngine("watching", llmgw_announce=hookimpl(lambda fact: seen.append(fact)))
    load(entry("deaf", deaf), entry("watching", watching)).announce("a fact")
    assert seen == ["a fact"]
    assert "observer failed" in caplog.text
