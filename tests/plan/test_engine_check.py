from attrs import evolve

from llmgw_core.engine import ENGINE_API, SWITCH, Command, EngineInfo, Flag, FlagTable, Program, Spelling, Surface
from llmgw_core.model.origin import LLMGW
from llmgw_core.plan.engine_check import Comparison, Outcome, RoleCommand, compare
from llmgw_core.plan.verdict import Verdict

INFO = EngineInfo("toy", ENGINE_API, ("1",), (Program("toy", (("toy",),)), Program("toy-worker", (("toy-worker",),))))


def table(letters: str, *cuts: str) -> FlagTable:
    return FlagTable(tuple(Flag((f"--{letter}",)) for letter in letters), cuts)


def command(
    letters: str, extra: str = "", *, program: str = "toy", role: str = "head", profile: str = LLMGW
) -> RoleCommand:
    args = [tuple(word for letter in each for word in (f"--{letter}", "1")) for each in (letters, extra)]
    return RoleCommand(role, profile, Command(program, (program,), args[0], args[1]))


def verdicts(compared: Comparison) -> dict[str, str]:
    return {flag.flag: flag.verdict.value for flag in compared.flags}


def test_all_flags_accepted() -> None:
    compared = compare(INFO, [command("ab")], {"toy": table("abc")})
    assert compared.outcome is Outcome.ACCEPTED
    assert verdicts(compared) == {"--a": "accepted", "--b": "accepted"}


def test_a_missing_flag_in_a_whole_text_is_a_finding() -> None:
    compared = compare(INFO, [command("abx")], {"toy": table("abc")})
    assert compared.outcome is Outcome.FINDINGS
    assert verdicts(compared)["--x"] == "not documented"


def test_a_missing_flag_in_a_cut_text_is_no_finding() -> None:
    compared = compare(
        INFO,
        [command("abd")],
        {"toy": table("abc", "its last lines are gone")},
        lambda _: [Surface("toy", "1", table("abcd"))],
    )
    assert compared.outcome is Outcome.UNCHECKED
    assert "looks cut short: its last lines are gone" in compared.unchecked
    assert verdicts(compared) == {"--a": "accepted", "--b": "accepted", "--d": "unchecked"}


def test_a_cut_that_lost_nothing_we_pass_is_a_warning() -> None:
    compared = compare(
        INFO,
        [command("ab")],
        {"toy": table("abc", "its last lines are gone")},
        lambda _: [Surface("toy", "1", table("abcd"))],
    )
    assert compared.outcome is Outcome.ACCEPTED
    assert compared.warnings == ("the help of toy looks cut short: its last lines are gone",)


def test_a_flag_gone_from_between_its_neighbours_is_a_finding_in_a_cut_text_too() -> None:
    compared = compare(
        INFO, [command("b")], {"toy": table("ac", "cut")}, lambda _: [Surface("toy", "1", table("abcd"))]
    )
    assert verdicts(compared) == {"--b": "not documented"}


def test_a_text_that_has_hardly_any_of_the_flags_is_another_programs() -> None:
    compared = compare(INFO, [command("abc")], {"toy": table("ayz")})
    assert compared.outcome is Outcome.UNCHECKED
    assert compared.unchecked == "this is not the help of toy: it has only 1 of the 3 flags"
    assert "not documented" not in verdicts(compared).values()


def test_extra_arguments_are_the_profiles_and_the_rest_is_llmgws() -> None:
    compared = compare(INFO, [command("a", "bx", profile="big")], {"toy": table("ab")})
    assert [(flag.flag, flag.origin) for flag in compared.flags] == [("--a", LLMGW), ("--b", "big"), ("--x", "big")]


def test_a_setting_that_makes_our_flag_unacceptable_is_the_profiles() -> None:
    choosy = FlagTable((Flag(("--a",), choices=("2",)),))
    compared = compare(INFO, [command("a", profile="big")], {"toy": choosy})
    assert [(flag.origin, flag.verdict) for flag in compared.flags] == [("big", Verdict.BAD_CHOICE)]


def test_each_program_is_judged_by_its_own_help() -> None:
    commands = [command("a"), command("w", program="toy-worker", role="worker")]
    compared = compare(INFO, commands, {"toy": table("a"), "toy-worker": table("w")})
    assert [(flag.flag, flag.role) for flag in compared.flags] == [("--a", "head"), ("--w", "worker")]
    assert compared.outcome is Outcome.ACCEPTED


def test_a_program_without_a_table_is_left_out() -> None:
    commands = [command("a"), command("w", program="toy-worker", role="worker")]
    assert verdicts(compare(INFO, commands, {"toy": table("a")})) == {"--a": "accepted"}


def test_a_definition_that_cannot_be_trusted_is_neither_a_finding_nor_accepted() -> None:
    doubtful = FlagTable((*table("a").flags, Flag(("--b",), SWITCH, doubt="the text may end within it")))
    compared = compare(INFO, [command("ab")], {"toy": doubtful})
    assert compared.outcome is Outcome.UNCHECKED
    assert compared.unchecked == "1 of 2 flags are there without a definition that can be trusted; give the whole text"
    assert [(flag.verdict, flag.detail) for flag in compared.flags][1:] == [
        (Verdict.UNCHECKED, "the text may end within it")
    ]


def test_a_hole_is_no_finding() -> None:
    compared = compare(
        INFO, [command("abf")], {"toy": table("acdefgh")}, lambda _: [Surface("toy", "1", table("abcdefgh"))]
    )
    assert compared.outcome is Outcome.FINDINGS
    compared = compare(
        INFO, [command("abf")], {"toy": table("aefgh")}, lambda _: [Surface("toy", "1", table("abcdefgh"))]
    )
    assert compared.outcome is Outcome.UNCHECKED
    assert "a hole around --b" in compared.unchecked


def test_a_description_before_a_hole_may_be_another_options() -> None:
    records = [Surface("toy", "1", table("abcd"))]
    garbled = Flag(("--b",), choices=("2",))
    whole = FlagTable((*table("a").flags, garbled, *table("cd").flags))
    compared = compare(INFO, [command("ab")], {"toy": whole}, lambda _: records)
    assert verdicts(compared)["--b"] == "bad choice"
    holed = FlagTable((*table("a").flags, garbled, *table("d").flags))
    compared = compare(INFO, [command("ab")], {"toy": holed}, lambda _: records)
    assert (compared.outcome, verdicts(compared)["--b"]) == (Outcome.UNCHECKED, "unchecked")


def test_the_records_are_asked_only_where_a_flag_is_missing() -> None:
    asked: list[str] = []

    def surfaces(program: str) -> list[Surface]:
        asked.append(program)
        return []

    compare(INFO, [command("ab")], {"toy": table("ab", "cut")}, surfaces)
    compare(INFO, [command("abx")], {"toy": table("abx")}, surfaces)
    assert asked == []
    compare(INFO, [command("abx")], {"toy": table("ab", "cut")}, surfaces)
    assert asked == ["toy"]


def test_a_missing_flag_names_the_recorded_versions_that_have_it() -> None:
    records = [Surface("toy", version, table(letters)) for version, letters in (("1", "a"), ("2", "ab"), ("3", "abc"))]
    compared = compare(INFO, [command("ab")], {"toy": table("ac")}, lambda _: records)
    assert compared.flags[1].detail == "this engine's help does not have it; recorded in 2 to 3"


def test_in_a_cut_text_a_beginning_of_another_flag_may_be_a_lost_flag() -> None:
    info = evolve(INFO, programs=(evolve(INFO.programs[0], spelling=Spelling(abbreviates=True)),))
    longer = FlagTable((Flag(("--ab",)),), ("its first lines are gone",))
    compared = compare(info, [command("a")], {"toy": longer}, lambda _: [])
    assert verdicts(compared) == {"--a": "unchecked"}
