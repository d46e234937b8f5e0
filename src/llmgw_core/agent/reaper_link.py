"""The agent's end of a reaper's socket.

Rules: one task hears; whoever asked waits for its answer; when the link ends, everybody is told, and `gone` is set.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.plan.shard_tree import ProcessId

ANSWER_S = 10.0
_LONGEST_LINE = 8 * 1024 * 1024


class ReaperGone(LlmgwError):
    """Nobody answers at a reaper's socket any more."""


class NotStarted(LlmgwError):
    """A process that the reaper could not start; the text is the system's."""


@frozen
class Held:
    """A process as its reaper knows it."""

    name: str
    id: ProcessId
    running: bool
    code: int | None = None
    signal: int | None = None
    tail: str = ""


@frozen
class ReaperState:
    id: ProcessId
    processes: tuple[Held, ...]
    lost: str = ""
    """What of the output the disk did not take."""


def _held(told: dict[str, Any]) -> Held:
    who = ProcessId(told["pid"], told["start"])
    return Held(told["name"], who, told["running"], told["code"], told["signal"], told["tail"])


@define(eq=False)
class ReaperLink:
    _stream: trio.SocketStream
    gone: trio.Event = field(factory=trio.Event)
    ended: dict[str, Held] = field(factory=dict)
    """The processes that have ended, by name."""
    _changed: trio.Event = field(factory=trio.Event)
    _answers: dict[int, dict[str, Any]] = field(factory=dict)
    _number: int = 0

    async def state(self) -> ReaperState:
        told = await self._ask(do="state")
        state = ReaperState(
            ProcessId(told["pid"], told["start"]), tuple(map(_held, told["processes"])), told.get("lost", "")
        )
        for each in state.processes:
            if not each.running:
                self.ended.setdefault(each.name, each)
        return state

    async def start(self, name: str, argv: tuple[str, ...], env: dict[str, str], cwd: str, **more: Any) -> Held:
        """The process of that name, started now or before; raises `NotStarted`."""
        told = await self._ask(do="start", name=name, argv=list(argv), env=env, cwd=cwd, **more)
        if "error" in told:
            raise NotStarted(told["error"])
        return _held(told)

    async def signal(self, name: str, number: int) -> None:
        await self._ask(do="signal", name=name, signal=number)

    async def end(self) -> bool:
        """Whether it ends now: not while something is left."""
        return bool((await self._ask(do="end"))["ending"])

    async def wait_ended(self, name: str) -> Held:
        """How that process ended, as soon as it has; raises `ReaperGone`."""
        while name not in self.ended:
            await self._wait_change()
        return self.ended[name]

    async def _wait_change(self) -> None:
        if self.gone.is_set():
            raise ReaperGone("the reaper of the shard is gone")
        await self._changed.wait()

    async def _ask(self, **request: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        with trio.move_on_after(ANSWER_S):
            try:
                await self._stream.send_all(json.dumps({"id": number, **request}).encode() + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ReaperGone("the reaper of the shard is gone") from error
            while number not in self._answers:
                await self._wait_change()
            return self._answers.pop(number)
        raise ReaperGone(f"the reaper of the shard gave no answer within {ANSWER_S:g} s")

    async def hear(self) -> None:
        """Until the link ends; it is for a task of its own, started before anything is asked."""
        try:
            async with self._stream:
                async for line in _lines(self._stream):
                    self._take(json.loads(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError, ValueError):
            pass
        finally:
            self.gone.set()
            self._tell()

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("event") == "exited":
            self.ended[message["name"]] = _held(message)
        elif "id" in message:
            self._answers[message["id"]] = message
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


async def _lines(stream: trio.SocketStream) -> AsyncIterator[bytes]:
    heard = b""
    while data := await stream.receive_some(65536):
        *lines, heard = (heard + data).split(b"\n")
        if len(heard) > _LONGEST_LINE:
            raise ValueError
        for line in lines:
            yield line


async def connect_reaper(directory: Path) -> ReaperLink:
    """The link to the reaper whose socket is in `directory`; raises `ReaperGone` where nobody answers.

    By way of a descriptor: the path of a socket takes 107 bytes at most.
    """
    connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    descriptor = -1
    try:
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        await connection.connect(f"/proc/self/fd/{descriptor}/socket")
    except OSError as error:
        connection.close()
        raise ReaperGone(f"nobody answers at {directory}/socket: {error.strerror}") from error
    finally:
        with suppress(OSError):
            os.close(descriptor)
    return ReaperLink(trio.SocketStream(connection))
