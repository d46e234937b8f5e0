"""The law of cut texts, on every recorded help: cut it after any line, from either end.

No flag that the whole text documents is ever called missing. Where the whole text accepts everything, the cut one is
accepted too, or unchecked.
"""

from collections.abc import Iterator
from functools import cache

import pytest

from llmgw_core.checking import check_engine, read_given
from llmgw_core.engines import Engines
from llmgw_core.plan.engine_check import EngineReport, Outcome
from llmgw_core.plan.verdict import Verdict
from llmgw_core.plugins import load_engines
from llmgw_core.testing import recorded_helps

ENGINES = ("vllm", "sglang", "llamacpp")
TEXTS = [
    (engine, path.name)
    for engine in ENGINES
    for path in recorded_helps(f"{engine}-")
    if not path.name.startswith("llamacpp-rpc-")
]
STRIDE = 61
"""Cutting after every line would take minutes; all lines at the ends and around each definition of ours, and every
61st, meet each kind of place."""


@cache
def engines() -> Engines:
    return load_engines(set(ENGINES))


def check(engine: str, text: str) -> EngineReport:
    program = engines().info(engine).programs[0].name
    return check_engine(engines(), engine, read_given(engines(), engine, {program: text}, "a test"))


def places(lines: list[str], used: set[str]) -> Iterator[int]:
    defined = {at for at, line in enumerate(lines) if any(f"{flag} " in f"{line.strip()} "[:200] for flag in used)}
    near = {at + offset for at in defined for offset in (0, 1)}
    for at in range(1, len(lines)):
        if at in near or at % STRIDE == 0 or at < 12 or at > len(lines) - 25:
            yield at


@pytest.mark.parametrize(
    ("engine", "name"), TEXTS or [pytest.param("", "", marks=pytest.mark.skip("no recorded helps"))]
)
@pytest.mark.parametrize("end", ["beginning kept", "end kept"])
def test_no_flag_that_the_whole_text_documents_is_called_missing(engine: str, name: str, end: str) -> None:
    (path,) = recorded_helps(name.removesuffix(".help.txt"))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = check(engine, "".join(lines))
    really_missing = {flag.flag for flag in whole.flags if flag.verdict is Verdict.NOT_DOCUMENTED}
    used = {flag.flag for flag in whole.flags}
    for at in places(lines, used):
        cut = check(engine, "".join(lines[:at] if end == "beginning kept" else lines[at:]))
        called_missing = {flag.flag for flag in cut.flags if not flag.verdict.passes} - {
            flag.flag for flag in cut.flags if flag.verdict is Verdict.UNCHECKED
        }
        assert called_missing <= really_missing, f"cut at line {at}: {called_missing - really_missing}"
        if whole.outcome is Outcome.ACCEPTED:
            assert cut.outcome in (Outcome.ACCEPTED, Outcome.UNCHECKED), f"cut at line {at}"
            if cut.outcome is Outcome.UNCHECKED:
                assert cut.reason
