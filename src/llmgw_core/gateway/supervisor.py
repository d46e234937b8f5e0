"""Several processes for one address: a worker for each listener, and one that keeps the link to the control plane.

    supervisor ──► link process: hears tables, puts them on the shelf, pokes every worker
               ──► worker 1..N: reads the shelf when poked; counts on the board

Rules: the supervisor does nothing but start what has ended, so that little can hurt it; it holds the listening sockets,
so that connections wait for a worker that is started again; once it is to stop, or is no more, nobody but the worker of
a listener holds it, so that nothing connects to where nobody will answer; the link outlives the workers, since the
control plane waits for what lingers; when the supervisor dies, its children notice and stop; they are made by fork,
before any event loop or thread is there.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from attrs import define, field, frozen

from llmgw_core.gateway.board import Board
from llmgw_core.gateway.shelf import Shelf

_HANGS_UP = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
"""With its terminal; under `nohup` it goes on."""
STOPS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if _HANGS_UP else ()))
"""They wait while a child is made, and in the child until it heeds them: else one would end a child that has just taken
connections, or miss it."""
AGAIN_S = 1.0
"""Least time between two starts of one child."""
POKE = b"."
_log = logging.getLogger("llmgw.gateway")


@frozen
class Child:
    """What a forked process gets of its supervisor."""

    board: Board
    shelf: Shelf
    pokes: tuple[int, ...]
    """Write ends, one for each worker."""
    poked: int | None
    """The worker's own read end; None for the link process."""
    supervised: int
    """Can be read, and is at its end, once the supervisor is no more."""

    def poke(self) -> None:
        """Have every worker read the shelf; one that was poked before and has not looked will see the latest."""
        for pipe in self.pokes:
            try:
                os.write(pipe, POKE)
            except BlockingIOError:
                continue


@define(eq=False)
class _Place:
    """A child's, over all its lives."""

    name: str
    run: Callable[[], None]
    worker: int | None
    pid: int = 0
    started: float = 0.0


@define(eq=False)
class Supervisor:
    """`link` and `work` are run in processes of their own; `work` gets the worker's number."""

    workers: int
    link: Callable[[Child], None]
    work: Callable[[Child, int], None]
    listeners: Sequence[Sequence[socket.socket]] = ()
    """By worker."""
    routes: bytes = b""
    """What is on the shelf at first."""
    board: Board = field(init=False)
    _places: list[_Place] = field(factory=list)
    _stopping: bool = False

    def run(self) -> None:
        """Until a signal to stop, and all children have ended."""
        self.board, shelf = Board(self.workers), Shelf()
        shelf.put(self.routes)
        pipes = [_pipe() for _ in range(self.workers)]
        pokes = tuple(write for _, write in pipes)
        supervised, alive = os.pipe()
        self._places = [_Place("link", lambda: self.link(Child(self.board, shelf, pokes, None, supervised)), None)]
        for number, (read, _) in enumerate(pipes):
            child = Child(self.board, shelf, (), read, supervised)
            self._places.append(_Place(f"worker {number + 1}", self._working(child, number), number))
        for number in STOPS:
            signal.signal(number, self._stop)
        for place in self._places:
            self._start(place, alive)
        self._watch(alive)

    def _working(self, child: Child, number: int) -> Callable[[], None]:
        return lambda: self.work(child, number)

    def _stop(self, number: int, _: FrameType | None) -> None:
        if self._stopping and number == signal.SIGHUP:
            return  # a terminal that goes sends it twice, and a second signal cuts
        self._stopping = True
        _log.info("stopping", extra={"signal": signal.Signals(number).name})
        self._close_listeners(None)
        for place in self._places:
            if place.pid and place.worker is not None:
                _end(place.pid)
        self._end_link()

    def _close_listeners(self, but: int | None) -> None:
        """Of all workers but that one."""
        for worker, listeners in enumerate(self.listeners):
            for listener in listeners if worker != but else ():
                listener.close()

    def _end_link(self) -> None:
        """Once there is no worker any more."""
        running = [place for place in self._places if place.pid]
        if all(place.worker is None for place in running):
            for place in running:
                _end(place.pid)

    def _start(self, place: _Place, alive: int) -> None:
        wait = place.started + AGAIN_S - time.monotonic()
        if place.started and wait > 0:
            time.sleep(wait)
        if place.worker is not None:
            self.board.forget_worker(place.worker)
        place.started = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        if not self._stopping:
            place.pid = os.fork()
            if not place.pid:
                os.close(alive)
                self._close_listeners(place.worker)
                _be_child(place.run)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)

    def _watch(self, alive: int) -> None:
        while any(place.pid for place in self._places):
            pid, status = os.wait()
            place = next((each for each in self._places if each.pid == pid), None)
            if place is None:
                continue
            place.pid = 0
            if self._stopping:
                self._end_link()
            else:
                how = os.waitstatus_to_exitcode(status)
                _log.error("ended, and is started again", extra={"child": place.name, "exit": how})
                self._start(place, alive)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):  # it may have ended, and we are about to hear of it
        os.kill(pid, signal.SIGTERM)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    return read, write


def _be_child(run: Callable[[], None]) -> None:
    """Never returns: what the supervisor would do after its fork is not the child's to do."""
    code = 1
    try:
        os.setpgid(0, 0)  # a terminal's Ctrl-C is for the supervisor: it tells us, and a second signal would cut
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # to say something there stops nobody (`stty tostop`)
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)
        run()
        code = 0
    except BaseException:
        logging.getLogger("llmgw.gateway").exception("failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
