"""What blocks for ever keeps nobody waiting."""

import os
from pathlib import Path

import trio

from llmgw_core.agent.facts import infiniband_look
from llmgw_core.agent.look import Look
from llmgw_core.model.node import Found
from llmgw_core.testing.running_node import DEADLINE_S


async def test_a_tree_with_a_file_that_blocks_is_given_up_and_looked_at_again(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    os.mkfifo(port / "state")
    look = infiniband_look(tmp_path)
    look.limit_s = 0.1
    with trio.fail_after(DEADLINE_S):
        assert "could not be read within" in (await look.take()).reason
        assert (await look.take()).outcome is Found.FAILED
    descriptor = os.open(port / "state", os.O_WRONLY)  # a writer at last, who says nothing
    os.close(descriptor)
    look.limit_s = DEADLINE_S
    (port / "state").unlink()
    with trio.fail_after(DEADLINE_S):
        assert (await look.take()).outcome is Found.SOME


async def test_one_thread_at_a_time_hangs() -> None:
    started: list[int] = []
    reader, writer = os.pipe()

    def read() -> str:
        started.append(1)
        return os.read(reader, 1).decode()

    look = Look(read, "not told", limit_s=0.05)
    assert [await look.take() for _ in range(3)] == ["not told"] * 3
    assert len(started) == 1
    os.write(writer, b"ab")
    look.limit_s = DEADLINE_S
    assert await look.take() == "b"
    os.close(reader)
    os.close(writer)


async def test_a_look_that_hangs_is_left_alone_when_the_agent_stops() -> None:
    reader, writer = os.pipe()
    with trio.fail_after(DEADLINE_S), trio.move_on_after(0.05):
        await Look(lambda: os.read(reader, 1), b"", limit_s=2 * DEADLINE_S).take()
    os.write(writer, b"x")
    os.close(writer)
