"""A small fleet in one process: an authority with good and bad certificates, a control plane on a free port, its log.

Every wait has a deadline. The control plane is the real one, with a real store, real TLS and real sockets.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from llmgw_core.control.app import ControlSettings, Embedded, run_control
from llmgw_core.log import TextFormatter
from llmgw_core.model.identity import Identity, Role
from llmgw_core.model.node import Found, GpuReport, IbReport, NodeFacts
from llmgw_core.net.call import Server, call
from llmgw_core.net.link import Link
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.pki.authority import Authority
from llmgw_core.pki.certificate import Order, make_key, make_leaf
from llmgw_core.pki.files import write_certificate, write_key
from llmgw_core.pki.names import AlternativeNames, parse_names
from llmgw_core.wire.message import PROTOCOL, Answer, Ask, Failed, Hello, Message, Refused, Unknown, Welcome

DEADLINE_S = 60.0
"""For one wait; only a test that fails takes so long."""
POLL_S = 0.01


def right_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - TLS looks at the real clock


def some_facts(**changes: Any) -> NodeFacts:
    """Small facts of a node without hardware."""
    given: dict[str, Any] = {
        "agent_version": "1",
        "gpus": GpuReport(Found.NONE),
        "infiniband": IbReport(Found.NONE),
    }
    return NodeFacts(**{**given, **changes})


@define
class MadeAuthority:
    """An authority in a directory, and files of whatever certificate a test needs."""

    directory: Path
    authority: Authority
    _made: int = 0

    @classmethod
    def create(cls, directory: Path, name: str = "llmgw-authority") -> MadeAuthority:
        return cls(directory, Authority.create(directory / "ca", right_now() - timedelta(days=400), name=name))

    def issue(self, role: Role, name: str, age: timedelta = timedelta(0)) -> CredentialFiles:
        """As `llmgw ca issue` would: recorded, `age` ago, and for 127.0.0.1 if it is a server's."""
        names = parse_names([], ["127.0.0.1"]) if role is Role.SERVER else AlternativeNames()
        issued = self.authority.issue(Order(Identity(role, name), names), right_now() - age)
        assert issued.key is not None
        return self._write(name, issued.certificate, issued.key)

    def make(
        self,
        role: Role,
        name: str,
        *,
        age: timedelta = timedelta(0),
        usage: x509.ExtendedKeyUsage | None = None,
        no_usage: bool = False,
        trusts: MadeAuthority | None = None,
    ) -> CredentialFiles:
        """One that `ca issue` would not make: `age` old, for another use, or beside another authority's root."""
        key = make_key()
        names = parse_names([], ["127.0.0.1"]) if role is Role.SERVER else AlternativeNames()
        leaf = make_leaf(Order(Identity(role, name), names), key.public_key(), self.authority.signer, right_now() - age)
        if usage is not None or no_usage:
            leaf = self._with_usage(leaf, usage)
        return self._write(name, leaf, key, trusts)

    def _with_usage(self, leaf: x509.Certificate, usage: x509.ExtendedKeyUsage | None) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(leaf.subject)
            .issuer_name(leaf.issuer)
            .public_key(leaf.public_key())
            .serial_number(leaf.serial_number)
            .not_valid_before(leaf.not_valid_before_utc)
            .not_valid_after(leaf.not_valid_after_utc)
        )
        for extension in leaf.extensions:
            if not isinstance(extension.value, x509.ExtendedKeyUsage):
                builder = builder.add_extension(extension.value, extension.critical)
        if usage is not None:
            builder = builder.add_extension(usage, critical=False)
        return builder.sign(self.authority.signer.key, hashes.SHA256())

    def _write(
        self, name: str, certificate: x509.Certificate, key: Any, trusts: MadeAuthority | None = None
    ) -> CredentialFiles:
        self._made += 1
        directory = self.directory / f"{self._made}-{name}"
        directory.mkdir()
        files = CredentialFiles(directory / f"{name}.crt", directory / f"{name}.key", directory / "ca.crt")
        write_certificate(files.certificate, certificate)
        write_key(files.key, key)
        write_certificate(files.authority, (trusts or self).authority.certificate)
        return files


class LogLines(logging.Handler):
    """What `llmgw` logs, line by line, as it would stand in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def find(self, pattern: str) -> list[str]:
        return [line for line in self.lines if re.search(pattern, line)]

    async def wait_for(self, pattern: str, times: int = 1) -> str:
        """The `times`-th line that has the pattern, as soon as it is there."""
        try:
            return str((await until(lambda: self.find(pattern)[times - 1 : times]))[0])
        except trio.TooSlowError:
            raise AssertionError(f"no line with {pattern!r} among:\n" + "\n".join(self.lines)) from None


async def until(condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """What the condition gives, as soon as that is something; trio.TooSlowError after the deadline."""
    with trio.fail_after(deadline_s):
        while not (found := condition()):  # noqa: ASYNC110 - a log and a process have no event to wait for
            await trio.sleep(POLL_S)
    return found


@contextmanager
def captured_log() -> Iterator[LogLines]:
    logger, lines = logging.getLogger("llmgw"), LogLines()
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


@contextmanager
def _own_garbage() -> Iterator[None]:
    """A control plane tunes the garbage collection of its process; the next test has its own again."""
    thresholds = gc.get_threshold()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@frozen
class MadeControl:
    """A control plane that runs in this process."""

    server: Server
    authority: MadeAuthority
    log: LogLines
    operator: CredentialFiles
    scope: trio.CancelScope

    def node(self, name: str) -> CredentialFiles:
        return self.authority.issue(Role.NODE, name)

    def connect(self, files: CredentialFiles) -> Any:
        """A link without a word said on it."""
        return call(self.server, files, right_now())

    @asynccontextmanager
    async def joined(self, files: CredentialFiles, name: str, instance: str = "i1") -> AsyncIterator[Peer]:
        """A link over which a Hello has been said and answered."""
        async with self.connect(files) as link:
            peer = Peer(link)
            await link.say(Hello(PROTOCOL, name, "1", instance))
            await peer.expect(Welcome)
            yield peer

    async def ask(self, what: str, **arguments: Any) -> Any:
        """As `llmgw ctl`: the answer, or an AssertionError with the reason."""
        async with self.joined(self.operator, "alice") as peer:
            return await peer.ask(what, **arguments)

    async def node_state(self, name: str) -> str:
        states = {node["name"]: node["state"] for node in await self.ask("nodes")}
        return str(states.get(name, "unknown"))

    async def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in await self.ask("events") if event["kind"] == kind]


@define
class Peer:
    """The far end of a link, as a test plays it."""

    link: Link
    _asked: int = field(default=0)

    async def hear(self) -> Message | Unknown:
        with trio.fail_after(DEADLINE_S):
            return await self.link.hear()

    async def expect(self, kind: type) -> Any:
        """The next message, which is of this kind; a refusal fails with its reason."""
        message = await self.hear()
        assert isinstance(message, kind), f"{message} in place of a {kind.__name__}"
        return message

    async def refusal(self) -> str:
        """The reason of the next Refused."""
        while not isinstance(message := await self.hear(), Refused):
            pass
        return message.reason

    async def ask(self, what: str, **arguments: Any) -> Any:
        self._asked += 1
        await self.link.say(Ask(self._asked, what, arguments))
        answer = await self.hear()
        assert not isinstance(answer, Failed), answer.reason
        assert isinstance(answer, Answer), answer
        return answer.value


@asynccontextmanager
async def running_control(
    directory: Path,
    *,
    authority: MadeAuthority | None = None,
    state: Path | None = None,
    renews: bool = False,
    embedded: Embedded | None = None,
) -> AsyncIterator[MadeControl]:
    """A control plane on a free port of 127.0.0.1, until the block ends."""
    authority = authority or MadeAuthority.create(directory)
    settings = ControlSettings(
        state or directory / "state",
        authority.issue(Role.SERVER, "control"),
        "127.0.0.1",
        0,
        authority.authority.directory if renews else None,
    )
    operator = authority.issue(Role.OPERATOR, "alice")
    with captured_log() as log, _own_garbage():
        async with trio.open_nursery() as nursery:
            with trio.fail_after(DEADLINE_S):
                (listener,) = await nursery.start(run_control, settings, embedded)
            port = listener.socket.getsockname()[1]
            yield MadeControl(Server("127.0.0.1", port), authority, log, operator, nursery.cancel_scope)
            nursery.cancel_scope.cancel()
