"""Engine-checks do not pile up."""

import trio
from trio.testing import wait_all_tasks_blocked

from llmgw_core.agent.app import _answer
from llmgw_core.agent.checks import EngineChecks
from llmgw_core.wire.message import CheckEngine, EngineChecked


class _Engine:
    def __init__(self) -> None:
        self.runs = 0
        self.end = trio.Event()

    async def check(self, order: CheckEngine) -> EngineChecked:
        self.runs += 1
        await self.end.wait()
        return EngineChecked(order.id, {"engine": order.engine})


async def test_who_asks_again_waits_for_the_same_result() -> None:
    engine = _Engine()
    checks = EngineChecks(engine.check)
    answers: list[EngineChecked] = []

    async def ask(number: int, name: str) -> None:
        answers.append(await checks.answer(CheckEngine(number, name)))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(ask, number, "vllm")
        nursery.start_soon(ask, 10, "sglang")
        await wait_all_tasks_blocked()
        assert engine.runs == 2
        engine.end.set()
    assert sorted(answer.id for answer in answers) == list(range(11))
    await ask(11, "vllm")
    assert engine.runs == 3


async def test_a_check_whose_asker_has_gone_is_made_for_the_next() -> None:
    engine = _Engine()
    checks = EngineChecks(engine.check)
    answers: list[EngineChecked] = []

    async def ask_second() -> None:
        answers.append(await checks.answer(CheckEngine(2, "vllm")))

    async with trio.open_nursery() as nursery:
        first = await nursery.start(_ask_until_cancelled, checks)
        await wait_all_tasks_blocked()
        nursery.start_soon(ask_second)
        await wait_all_tasks_blocked()
        first.cancel()
        engine.end.set()
    assert (engine.runs, [answer.id for answer in answers]) == (2, [2])


async def _ask_until_cancelled(checks: EngineChecks, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await checks.answer(CheckEngine(1, "vllm"))


def test_a_report_that_fits_into_no_message_is_a_reason() -> None:
    order = CheckEngine(1, "vllm")
    assert _answer(order, {"reason": "short"}) == EngineChecked(1, {"reason": "short"})
    assert "no message takes" in _answer(order, {"reason": "x" * 4_000_000}).reason
