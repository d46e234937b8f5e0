"""The law of cut texts, on every recorded help: cut it after any line or byte, from either end, or damage its lines.

No flag that the whole text documents is ever called missing, removed or wrongly used, by whatever spelling: the cut
text accepts what the whole one accepts, or could not be checked.
"""

import random
import subprocess
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from llmgw_core.checking import Material, build_commands
from llmgw_core.engine import Command, FlagTable, NotCompleteHelp
from llmgw_core.engines import Engines
from llmgw_core.plan import verdict
from llmgw_core.plan.engine_check import Comparison, Outcome, RoleCommand, compare
from llmgw_core.plan.verdict import Verdict
from llmgw_core.plugins import load_engines
from llmgw_core.surface import read_surfaces
from llmgw_core.testing import recorded_directory, recorded_help, recorded_helps

Kind = Callable[[str, random.Random], Iterator[str]]
UNCHECKED = Verdict.UNCHECKED
ENGINES = ("vllm", "sglang", "llamacpp")
TEXTS = [path.name for engine in ENGINES for path in recorded_helps(f"{engine}-")]
CUTS = 4
"""How many cuts of each kind each text gets: all of them, which take an hour, were run when this was written."""


@cache
def engines() -> Engines:
    return load_engines({*ENGINES, "sim"})


@pytest.fixture(autouse=True)
def _no_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time and are no part of the law."""
    monkeypatch.setattr(verdict, "_nearest", lambda name, table: ())


def every_spelling(table: FlagTable) -> tuple[str, ...]:
    """A use of each flag by each of its names."""
    words: list[str] = []
    for flag in table.flags:
        values = [flag.choices[0] if flag.choices else "1"] * max(flag.arity.least, flag.arity.most is None)
        for name in (*flag.names, *flag.hidden):
            words += [name, *values]
    return tuple(words)


def check(name: str, text: str, extra: tuple[str, ...] | None = None) -> tuple[Comparison, tuple[str, ...]] | None:
    """What the text says of the widest command and of `extra`, by default of each spelling that it documents."""
    info = engines().info(name.partition("-")[0])
    program = info.programs[-1 if "-rpc-" in name else 0].name
    try:
        table = engines().read_help(info.name, program, text)
    except NotCompleteHelp:
        return None
    words = every_spelling(table) if extra is None else extra
    commands, _ = build_commands(engines(), info, Material("a test", {program: table}), ())
    mine = RoleCommand("head", "mine", Command(program, (program,), (), words))
    return compare(info, (*commands, mine), {program: table}, lambda name: read_surfaces(info, name)), words


def verdicts(compared: Comparison) -> dict[str, Verdict]:
    return {flag.flag: flag.verdict for flag in compared.flags}


def cuts(text: str, sample: random.Random) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    for at in sample.sample(range(1, len(lines)), min(CUTS, len(lines) - 1)):
        yield "".join(lines[:at])
        yield "".join(lines[at:])
        yield "".join(lines[:at]) + sample.choice(["user@gpu01:~$ ", "^C\n", "Broken pipe\n", "<truncated>", "LoRA"])
    for at in sample.sample(range(1, len(text)), CUTS):
        yield text[:at]
        yield text[at:]
    headers = [at for at in range(1, len(text)) if text[at] == "-" and text[:at].endswith(("\n", "\n  "))]
    for at in sample.sample(headers, min(CUTS, len(headers))):
        yield text[: at + sample.randrange(3, 60)]


def holes(text: str, sample: random.Random) -> Iterator[str]:
    """Wide enough to lose several options: one alone that is missing between its neighbours is a finding."""
    lines = text.splitlines(keepends=True)
    for at in sample.sample(range(1, len(lines)), min(CUTS, len(lines) - 1)):
        yield "".join(lines[:at] + lines[at + sample.randrange(60, 250) :])


def damages(text: str, sample: random.Random) -> Iterator[str]:
    wide = sample.choice(["40", "60", "79", "80", "100"])
    for command in (["unexpand", "-a"], ["cut", f"-c1-{wide}"], ["fold", "-s", "-w", wide], ["fold", "-w", wide]):
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=True, timeout=60)
        yield done.stdout.decode(errors="replace")
    yield "\ufeff" + text.replace("\n", "\r\n").rstrip()
    yield text.replace(". ", ".\u2028").replace("\n", "\r")


@pytest.mark.parametrize("name", TEXTS or [pytest.param("", marks=pytest.mark.skip("no recorded helps"))])
@pytest.mark.parametrize("kind", [cuts, holes, damages])
def test_what_the_whole_text_accepts_is_accepted_or_unchecked(name: str, kind: Kind) -> None:
    text = (recorded_directory() / "help" / name).read_text(encoding="utf-8")
    whole, words = check(name, text) or pytest.fail("refused")
    accepted = {flag for flag, found in verdicts(whole).items() if found.passes}
    for part in kind(text, random.Random(name)):  # noqa: S311 - the same sample each time
        found = check(name, part, words)
        if found is None:
            continue
        wrong = {
            flag: said
            for flag, said in verdicts(found[0]).items()
            if not said.passes and said is not UNCHECKED and flag in accepted
        }
        assert not wrong, f"{len(part)} characters, ending in {part[-80:]!r}"
        if whole.outcome is Outcome.ACCEPTED:
            assert found[0].outcome is not Outcome.FINDINGS


def head(count: int) -> Callable[[str], str]:
    return lambda text: "".join(text.splitlines(keepends=True)[:count])


@pytest.mark.parametrize(
    ("name", "cut", "extra"),
    [
        ("vllm-0.13.0", lambda text: head(600)(text) + "user@gpu01:~$ \n", ()),
        ("vllm-0.32.0", lambda text: text.encode()[:104106].decode(errors="replace"), ()),
        ("vllm-0.13.0", lambda text: text[:41732], ()),
        ("vllm-0.32.0", lambda text: text[: text.index("\n  --speculative-config") + 23], ()),
        ("sglang-0.5.23", lambda text: text[:60000], ("--expert-parallel-size", "2")),
        ("sglang-0.5.18", head(2248), ("--enable-expert-distribution-metrics",)),
        ("sglang-0.5.18", head(600), ("--enable-expert-distribution-metrics",)),
        ("llamacpp-b10434", lambda text: text[:30556], ("--draft-max", "4")),
        ("llamacpp-b10991", lambda text: head(20)(text) + text.partition(head(60)(text))[2], ()),
    ],
)
def test_known_cuts_could_not_be_checked(name: str, cut: Callable[[str], str], extra: tuple[str, ...]) -> None:
    found = check(name, cut(recorded_help(f"{name}.help.txt")), extra)
    assert found is not None
    assert found[0].outcome is Outcome.UNCHECKED
    said = verdicts(found[0])
    assert {flag: verdict for flag, verdict in said.items() if not verdict.passes and verdict is not UNCHECKED} == {}
    assert all(said[flag] is UNCHECKED for flag in extra[:1])


def test_a_module_run_by_python_3_14_is_checked_as_ever() -> None:
    text = recorded_help("sglang-0.5.23.help.txt").replace("sglang serve", "python3 -m sglang.launch_server", 1)
    found = check("sglang", text, ())
    assert found is not None
    assert (found[0].outcome, found[0].warnings) == (Outcome.ACCEPTED, ())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "sim"])
@pytest.mark.parametrize("name", ["vllm-0.32.0", "sglang-0.5.23", "sglang-0.4.6.post5", "llamacpp-b10991"])
def test_another_engines_help_is_never_judged_by(engine: str, name: str) -> None:
    if name.startswith(engine):
        return
    found = check(engine, recorded_help(f"{name}.help.txt"), ())
    assert found is None or found[0].outcome is Outcome.UNCHECKED
