"""The contract that every engine plugin keeps, as a test suite.

A plugin's test module subclasses `EngineContract` and names its engine; pytest runs the claims. A claim that a plugin
cannot keep is overridden with `@departs("reason")`; overriding one without a reason is refused when the class is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw_core.checking import Material, build_commands, program_of
from llmgw_core.engine import (
    Command,
    EngineInfo,
    Exit,
    FlagTable,
    ImpossibleReplica,
    NotCompleteHelp,
    ReplicaSpec,
    Reply,
    ReplyKind,
    Secret,
    Surface,
)
from llmgw_core.engines import Engines
from llmgw_core.plan.engine_check import compare
from llmgw_core.plugins import SPOKEN_APIS, load_engines
from llmgw_core.surface import read_surfaces
from llmgw_core.testing.fields import field_names, is_set, variations

T = TypeVar("T", bound=Callable[..., Any])

# Every plugin's suite inherits the claims, so hypothesis sees the same methods called on several classes.
_CLAIM = settings(suppress_health_check=[HealthCheck.differing_executors])
_REPLIES = [Reply(kind, status) for kind in ReplyKind for status in (0, 200, 204, 404, 500, 503)]
_EXITS = st.builds(
    Exit,
    code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    log_tail=st.text(),
    asked=st.booleans(),
    node_rank=st.integers(0, 3),
)


def departs(reason: str) -> Callable[[T], T]:
    """Mark an overridden claim, with the reason why this engine cannot keep it."""

    def mark(test: T) -> T:
        test.departs = reason  # type: ignore[attr-defined]
        return test

    return mark


@cache
def _engines(engine: str) -> Engines:
    return load_engines({engine})


class EngineContract:
    """Subclass it, name the engine, and every claim below is tested on its plugin."""

    engine: ClassVar[str]
    gaps: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By recorded engine version, flags that this version does not have; say why in a comment."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in vars(cls):
            claim = name.startswith("test_") and hasattr(EngineContract, name)
            if claim and not getattr(vars(cls)[name], "departs", ""):
                raise TypeError(f"{cls.__name__} overrides {name} without @departs(reason)")

    @property
    def engines(self) -> Engines:
        return _engines(self.engine)

    @property
    def info(self) -> EngineInfo:
        return self.engines.info(self.engine)

    def specs(self) -> tuple[ReplicaSpec, ...]:
        return self.engines.widest_specs(self.engine)

    def commands(self, spec: ReplicaSpec, tables: Mapping[str, FlagTable] | None = None) -> tuple[Command, ...]:
        """The command of each shard, the head's first."""
        known = tables or {}
        return tuple(
            self.engines.build_command(shard, known.get(program_of(self.info, shard.node_rank)))
            for shard in spec.shards
        )

    def heeded_fields(self) -> tuple[str, ...]:
        """The fields of a replica that the plugin does not declare ignored, alone or with all that they have."""
        ignored = self.info.ignored_fields
        parents = {name: [name[:at] for at, letter in enumerate(name) if letter == "."] for name in field_names()}
        return tuple(name for name in field_names() if not {name, *parents[name]} & set(ignored))

    def surfaces(self) -> Iterator[tuple[str, list[Surface]]]:
        """Each recorded version with the tables of the programs that were recorded for it."""
        recorded = [surface for program in self.info.programs for surface in read_surfaces(self.info, program.name)]
        for version in dict.fromkeys(surface.version for surface in recorded):
            yield version, [surface for surface in recorded if surface.version == version]

    # what the plugin says of itself

    def test_the_plugin_is_accepted(self) -> None:
        assert not self.engines.refused
        assert self.info.api in SPOKEN_APIS
        assert self.info.programs
        assert self.info.checked_versions

    def test_every_checked_version_is_recorded_or_there_are_no_records(self) -> None:
        recorded = [surface.version for surface in read_surfaces(self.info, self.info.programs[0].name)]
        assert not recorded or recorded == list(self.info.checked_versions)

    # command building

    def test_commands_are_deterministic(self) -> None:
        for spec in self.specs():
            assert self.commands(spec) == self.commands(spec)

    def test_commands_run_the_slots_executable_with_texts(self) -> None:
        for spec in self.specs():
            for shard, command in zip(spec.shards, self.commands(spec), strict=True):
                assert command.program == program_of(self.info, shard.node_rank)
                assert command.executable[: len(shard.slot.executable)] == shard.slot.executable
                assert all(type(word) is str and "\0" not in word for word in command.argv)
                assert all(type(text) is str for pair in command.env.items() for text in pair)

    def test_the_widest_specs_set_every_field(self) -> None:
        for name in self.heeded_fields():
            # Extra arguments are the operator's: the widest command has none, so that none is judged as llmgw's.
            assert name == "extra_args" or any(is_set(spec, name) for spec in self.specs()), (
                f"no widest spec sets {name}"
            )

    def test_every_field_changes_a_command_or_is_ignored_for_a_reason(self) -> None:
        for name in self.heeded_fields():
            assert any(self._changes(spec, name) for spec in self.specs()), f"{name} changes no command"

    def _changes(self, spec: ReplicaSpec, name: str) -> bool:
        """Whether another value of the field changes a command; one that the engine refuses has been noticed too."""
        before = self.commands(spec)
        refused = 0
        others = list(variations(spec, name))
        for other in others:
            try:
                if self.commands(other()) != before:
                    return True
            except ImpossibleReplica:
                refused += 1
        return bool(others) and refused == len(others)

    def test_ignored_fields_are_fields_and_have_reasons(self) -> None:
        for name, reason in self.info.ignored_fields.items():
            assert any(field == name or field.startswith(f"{name}.") for field in field_names()), f"{name} is no field"
            assert reason.strip()

    def test_no_secret_is_in_argv_or_shown(self) -> None:
        secret = "s3cr3t-0f-n0b0dy"  # noqa: S105 - what must not be found
        for spec in (evolve(spec, api_key=Secret(secret)) for spec in self.specs()):
            for command in self.commands(spec):
                assert not any(secret in word for word in command.argv)
                assert secret not in repr(command)
                assert secret not in repr(spec)

    def test_extra_args_stand_last_and_extra_env_wins(self) -> None:
        for spec in self.specs():
            head = self.commands(spec)[0]
            assert head.extra_args == spec.extra_args
            assert set(spec.extra_env.items()) <= set(head.env.items())

    def test_extra_args_that_change_what_is_served_or_where_are_refused(self) -> None:
        for flag in (*self.info.own_flags, *self.info.ending_flags):
            for spec in self.specs():
                assert any(flag in clause for clause in self.engines.refusals(evolve(spec, extra_args=(flag, "1"))))

    # help-output flag checking

    def test_every_flag_is_known_to_each_recorded_version(self) -> None:
        for version, surfaces in self.surfaces():
            tables = {surface.program: surface.table for surface in surfaces}
            commands, _ = build_commands(self.engines, self.info, Material("recorded", tables), ())
            compared = compare(self.info, commands, tables)
            refused = {flag.flag: f"{flag.verdict.value}: {flag.detail}" for flag in compared.flags if _bad(flag)}
            assert set(refused) == set(self.gaps.get(version, ())), f"{version}: {refused}"

    def test_help_is_asked_for(self) -> None:
        for program in self.info.programs:
            commands = self.engines.help_commands(self.engine, program.name, program.commands[0])
            assert commands
            assert all(command.program == program.name for command in commands)

    @_CLAIM
    @given(st.text() | st.lists(st.text(alphabet="-=[]{}|, \nabno", max_size=40)).map("\n".join))
    def test_reading_help_takes_any_text(self, text: str) -> None:
        for program in self.info.programs:
            try:
                table = self.engines.read_help(self.engine, program.name, text)
            except NotCompleteHelp as error:
                reason = error.reason
            else:
                reason = "" if table.flags else "\n"
            assert "\n" not in reason

    @_CLAIM
    @given(st.text())
    def test_reading_a_version_takes_any_text(self, text: str) -> None:
        assert self.engines.read_version(self.engine, text) != ""

    # health probing

    def test_the_head_is_probed(self) -> None:
        for spec in self.specs():
            probe = self.engines.health_probe(spec.shards[0])
            assert probe is not None
            assert probe.endpoint.port == spec.slots[0].listen.port

    @_CLAIM
    @given(st.sampled_from(_REPLIES), st.text(), st.booleans())
    def test_health_takes_any_reply(self, reply: Reply, body: str, seen_ready: bool) -> None:
        for shard in self.specs()[0].shards:
            self.engines.read_health(shard, Reply(reply.kind, reply.status, body, seen_ready))

    @_CLAIM
    @given(_EXITS)
    def test_an_exit_that_nobody_asked_for_is_a_failure(self, exit: Exit) -> None:
        failure = self.engines.explain_exit(self.engine, exit)
        if not exit.asked:
            assert failure is not None
        if failure is not None:
            assert failure.reason
            assert "\n" not in failure.reason

    @_CLAIM
    @given(_EXITS)
    def test_reading_a_dry_run_takes_any_exit(self, exit: Exit) -> None:
        complaints = self.engines.read_dry_run(self.engine, exit)
        assert complaints is None or all(complaints)


def _bad(flag: Any) -> bool:
    return not flag.verdict.passes
