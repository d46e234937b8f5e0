"""The process that holds the processes of one shard, so that they outlive the agent. It knows nothing of llmgw.

In: JSON lines on a UNIX socket: start, signal, state, end.  Out: an answer for each, and `exited` whenever one ended.
Rules: it is the parent of all that its processes leave behind (PR_SET_CHILD_SUBREAPER), so whatever has no parent here
is not of this shard; it never waits for a disk, a client or a process; what a disk does not take is dropped and
counted, and the engine does not notice; it ends when it was told to and nothing is left.
It runs with the standard library only, from a copy of this file in the shard's directory, whatever becomes of the
release that started it. Secrets come over the socket and are kept nowhere.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

LOG_BYTES, LOG_FILES = 16 * 1024 * 1024, 4
TAIL_BYTES = 16 * 1024
LINE_BYTES = 4096
REQUEST_BYTES, UNREAD_BYTES = 8 * 1024 * 1024, 1024 * 1024
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """`reaper.py DIRECTORY [LOG_BYTES [daemon]]`: as a daemon it returns once its socket is there."""
    os.chdir(sys.argv[1])
    listener = listen()
    if "daemon" in sys.argv:
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    Reaper(listener, Log("logs", int(sys.argv[2]) if len(sys.argv) > 2 else LOG_BYTES)).run()


def listen() -> socket.socket:
    # The name is relative: the path of a socket takes 107 bytes at most, and a state directory may be deep.
    with suppress(FileNotFoundError):
        os.unlink("socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    mask = os.umask(0o077)
    listener.bind("socket")
    os.umask(mask)
    listener.listen(8)
    return listener


def started_at(pid: int) -> int:
    """The process's start, in clock ticks since the machine's."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


class Log:
    """Numbered files (`1.log`, `2.log`, …) of which the last is written; the oldest goes."""

    def __init__(self, directory: str, limit: int) -> None:
        self.directory, self.limit, self.lost, self.reason = directory, limit, 0, ""
        self.file, self.size = -1, 0
        with suppress(OSError):
            os.mkdir(directory, 0o700)
        self.number = max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        with suppress(OSError):
            return sorted(int(n[:-4]) for n in os.listdir(self.directory) if n.endswith(".log") and n[:-4].isdigit())
        return []

    def write(self, data: bytes) -> None:
        try:
            if self.file < 0 or self.size >= self.limit:
                self.open_next()
            if self.lost:
                self.put(f"llmgw: {self.lost} bytes of output were lost: {self.reason}\n".encode())
                self.lost = 0
            self.put(data)
        except OSError as error:
            self.lost += len(data)
            self.reason = error.strerror or str(error)

    def put(self, data: bytes) -> None:
        self.size += len(data)
        while data:
            data = data[os.write(self.file, data) :]

    def open_next(self) -> None:
        path = os.path.join(self.directory, f"{self.number + 1}.log")
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self.file >= 0:
            os.close(self.file)
        self.file, self.size, self.number = opened, 0, self.number + 1
        for number in self.numbers()[:-LOG_FILES]:
            os.unlink(os.path.join(self.directory, f"{number}.log"))


class Child:
    """One named process. What it leaves behind may go on writing to its pipe."""

    def __init__(self, name: str, pid: int, output: int, prefix: str) -> None:
        self.name, self.pid, self.output, self.prefix = name, pid, output, prefix.encode()
        self.start = started_at(pid)
        self.partial, self.tail = b"", bytearray()
        self.ended: tuple[int | None, int | None] | None = None

    def state(self) -> dict[str, Any]:
        code, number = self.ended or (None, None)
        tail = bytes(self.tail).decode("utf-8", "replace")
        told = {"name": self.name, "pid": self.pid, "start": self.start, "running": self.ended is None}
        return {**told, "code": code, "signal": number, "tail": tail}

    def take(self, data: bytes) -> bytes:
        """What of it is to be written: whole lines, so that processes do not write into each other's."""
        self.tail += data
        del self.tail[:-TAIL_BYTES]
        whole, newline, rest = (self.partial + data).rpartition(b"\n")
        if len(rest) > LINE_BYTES or not data:
            whole, newline, rest = whole + newline + rest, b"\n" if rest else b"", b""
        self.partial = rest
        return self.marked(whole + newline) if whole or newline else b""

    def marked(self, lines: bytes) -> bytes:
        return b"".join(self.prefix + line for line in lines.splitlines(keepends=True)) if self.prefix else lines


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.heard, self.unsent = connection, b"", b""


class Reaper:
    def __init__(self, listener: socket.socket, log: Log) -> None:
        self.listener, self.log = listener, log
        self.children: dict[str, Child] = {}
        self.clients: set[Client] = set()
        self.selector = selectors.DefaultSelector()
        self.ending = False

    def run(self) -> None:
        wake, waker = socket.socketpair()
        wake.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self.selector.register(wake, selectors.EVENT_READ, self.on_signal)
        self.selector.register(self.listener, selectors.EVENT_READ, self.on_connection)
        while not self.ending:
            for key, events in self.selector.select():
                if key.fd in self.selector.get_map():
                    key.data(key.fileobj, events)
        with suppress(OSError):
            os.unlink("socket")

    def on_signal(self, wake: socket.socket, _: int) -> None:
        if signal.SIGTERM in wake.recv(4096):  # the machine goes down: who waits for it is asked, and reaped as ever
            for child in self.children.values():
                self.send_signal(child, signal.SIGTERM)
        self.reap()

    def reap(self) -> bool:
        """Take note of all that ended; whether nothing is left: what processes leave behind are children too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            for child in self.children.values():
                if child.pid == pid and child.ended is None:
                    code = os.waitstatus_to_exitcode(status)
                    self.note_end(child, (code, None) if code >= 0 else (None, -code))

    def note_end(self, child: Child, ended: tuple[int | None, int | None]) -> None:
        self.drain(child)
        child.ended = ended
        said = f"exit code {ended[0]}" if ended[1] is None else f"signal {ended[1]}"
        self.log.write(child.take(b"") + f"llmgw: {child.name} ended: {said}\n".encode())
        for client in set(self.clients):
            self.say(client, {"event": "exited", **child.state()})

    def on_output(self, output: int, _: int) -> None:
        for child in self.children.values():
            if child.output == output:
                self.drain(child, 1)

    def drain(self, child: Child, most: int = 64) -> None:
        """Take what is there; `most` keeps one that writes without end from being all that is looked at."""
        for _ in range(most):
            if child.output < 0:
                return
            try:
                data = os.read(child.output, 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.log.write(child.take(data))
            if not data:
                self.selector.unregister(child.output)
                os.close(child.output)
                child.output = -1

    def on_connection(self, listener: socket.socket, _: int) -> None:
        with suppress(OSError):
            connection, _address = listener.accept()
            connection.setblocking(False)
            client = Client(connection)
            self.clients.add(client)
            self.selector.register(connection, selectors.EVENT_READ, lambda _, events: self.on_client(client, events))

    def on_client(self, client: Client, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self.flush(client)
            if events & selectors.EVENT_READ:
                data = client.connection.recv(65536)
                if not data:
                    raise ConnectionResetError
                *lines, client.heard = (client.heard + data).split(b"\n")
                for line in lines:
                    self.say(client, self.answer(json.loads(line)))
                if len(client.heard) > REQUEST_BYTES:
                    raise ConnectionResetError
        except BlockingIOError:
            pass
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            self.drop(client)

    def drop(self, client: Client) -> None:
        if client in self.clients:
            self.clients.discard(client)
            self.selector.unregister(client.connection)
            client.connection.close()

    def say(self, client: Client, message: dict[str, Any]) -> None:
        client.unsent += json.dumps(message).encode() + b"\n"
        try:
            self.flush(client)
            if len(client.unsent) > UNREAD_BYTES:
                raise ConnectionResetError
        except OSError:
            self.drop(client)

    def flush(self, client: Client) -> None:
        with suppress(BlockingIOError):
            while client.unsent:
                client.unsent = client.unsent[client.connection.send(client.unsent) :]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        if client in self.clients:
            self.selector.modify(client.connection, events, self.selector.get_key(client.connection).data)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        done = {"id": request["id"]}
        doing = {"start": self.do_start, "signal": self.do_signal, "state": self.do_state, "end": self.do_end}
        try:
            return {**done, **doing[request["do"]](request)}
        except OSError as error:
            return {**done, "error": error.strerror or str(error)}

    def do_state(self, _: dict[str, Any]) -> dict[str, Any]:
        own = {"pid": os.getpid(), "start": started_at(os.getpid())}
        lost = f"{self.log.lost} bytes of output were lost: {self.log.reason}" if self.log.lost else ""
        return {**own, "processes": [child.state() for child in self.children.values()], "lost": lost}

    def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a process; one of this name that is there already is told of instead."""
        name = request["name"]
        if name not in self.children:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            try:
                pid = spawn(request, writer)
            except OSError:
                os.close(reader)
                raise
            finally:
                os.close(writer)
            self.children[name] = Child(name, pid, reader, request.get("prefix", ""))
            self.selector.register(reader, selectors.EVENT_READ, self.on_output)
            self.log.write(f"llmgw: {name} started, pid {pid}\n".encode())
        return self.children[name].state()

    def do_signal(self, request: dict[str, Any]) -> dict[str, Any]:
        child = self.children.get(request["name"])
        if child is not None:
            self.send_signal(child, request["signal"], group=request.get("group", False))
        return {}

    def send_signal(self, child: Child, number: int, *, group: bool = False) -> None:
        if child.ended is None:  # not reaped, so nobody else has its pid
            with suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(child.pid, number)

    def do_end(self, _: dict[str, Any]) -> dict[str, Any]:
        """End, unless something is left."""
        self.ending = self.reap()
        return {"ending": self.ending}


def spawn(request: dict[str, Any], output: int) -> int:
    """The pid of the new process, which leads a session of its own; raises OSError where it cannot be started."""
    failed, failure = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(request, output, failure)
    os.close(failure)
    with os.fdopen(failed, "rb") as file:
        said = file.read()
    if said:
        os.waitpid(pid, 0)
        number, _, what = said.decode("utf-8", "replace").partition(" ")
        raise OSError(int(number), f"{what}: {os.strerror(int(number))}")
    return pid


def become(request: dict[str, Any], output: int, failure: int) -> None:
    argv = request["argv"]
    what = argv[0]
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, output, output)):
            os.dup2(descriptor, number)
        what = request["cwd"]
        os.chdir(what)
        what = argv[0]
        signal.set_wakeup_fd(-1)
        for each in signal.valid_signals():
            if each == signal.SIGPIPE and request.get("ignore_sigpipe"):
                continue  # Python ignores it, and what is ignored stays so
            with suppress(OSError, ValueError):
                signal.signal(each, signal.SIG_DFL)
        os.execvpe(argv[0], argv, request["env"])  # noqa: S606 - to start what it is told is its work
    except OSError as error:
        os.write(failure, f"{error.errno or 0} {what}".encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
