"""From a request to a node: looks, decides, carries out, waits.

Rules: nothing is changed anywhere while there is a problem, but that a new host's key is remembered; whatever ends it
early, the next run goes on from what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

from attrs import define, field, frozen

from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity, Role
from llmgw_core.onboard.certificate import Standing, describe_kept, why_new_certificate
from llmgw_core.onboard.checks import chosen_release, find_notes, find_problems, name_problem, server_of
from llmgw_core.onboard.facts import Facts, Machine, Release, ServerSeen
from llmgw_core.onboard.installing import Installing, Say
from llmgw_core.onboard.known_hosts import fingerprint_of, is_key
from llmgw_core.onboard.reading import look_at_machine, look_at_release, look_at_server, unreadable
from llmgw_core.onboard.request import UNIT_NAME, NodeRequest
from llmgw_core.onboard.settings import plan_values, render_settings
from llmgw_core.onboard.ssh import Session, check_named_key, open_session, remember_keys
from llmgw_core.onboard.steps import Plan, Wanted, certificate_steps, plan_steps
from llmgw_core.onboard.turn import taken
from llmgw_core.onboard.unit import packaged_unit, render_unit
from llmgw_core.pki.authority import Authority, NoAuthority, describe_authority_end
from llmgw_core.pki.certificate import Order
from llmgw_core.pki.files import certificate_pem, key_pem
from llmgw_core.pki.names import AlternativeNames
from llmgw_core.pki.record import Record
from llmgw_core.pki.validity import LIFE_DAYS, describe_time, has_ended

AGAIN = "run this again: it goes on from what it finds"


class Refused(LlmgwError):
    """All that speaks against it; nothing was changed on the machine, and nothing issued."""


class NotOnboarded(LlmgwError):
    """Changes had begun."""


@frozen(kw_only=True)
class Site:
    """What this host has, and how it is talked to."""

    ca_dir: Path
    known_hosts: Path
    say: Say
    now: Callable[[], datetime]
    binary: Path | None = None
    host_key: str = ""
    """What `--host-key` names; empty: a first contact is believed, and shown."""
    days: int = LIFE_DAYS
    remembers: bool = True
    """Whether a new host key is kept; a dry run keeps none."""
    revoked: Callable[[], Collection[str]] = tuple
    """The serials that an operator sees revoked."""
    online_from: Callable[[str], str] = lambda node: ""
    """From where a node is connected, as an operator sees it; empty: it is not, or nobody can ask."""
    revoke: Callable[[str], bool] = lambda serial: False
    """Revokes one as an operator, and says whether it did; raises nothing."""


@define(eq=False)
class Onboarding:
    request: NodeRequest
    site: Site
    session: Session
    machine: Machine
    authority: Authority
    plan: Plan
    kept: str
    """What is said of a certificate that stays; empty: there is a new one."""
    revoked: Collection[str] = ()
    _issued: str = field(default="", init=False)

    def carry_out(self) -> None:
        """Raises `NotOnboarded`."""
        try:
            self._carry_out()
        except LlmgwError as error:
            raise NotOnboarded("\n".join(filter(None, (str(error), self.tie_up(), AGAIN)))) from error

    def _carry_out(self) -> None:
        installing = Installing(self.session, self.site.say)
        installing.carry_out(self.plan.before)
        if self.plan.why_new:
            self._deliver(installing)
        installing.carry_out(self.plan.after)

    def _deliver(self, installing: Installing) -> None:
        now = self.site.now()
        identity = Identity(Role.NODE, self.request.node)
        older = [each for each in self.authority.issued() if each.identity == identity]
        issued = self.authority.issue(Order(identity, AlternativeNames(), self.site.days), now)
        assert issued.key is not None  # noqa: S101 - the authority made it
        self._issued, until = issued.record.serial, describe_time(issued.record.not_after)
        self.site.say(f"issued a new certificate, since {self.plan.why_new}: serial {self._issued}, until {until}")
        for warning in issued.warnings:
            self.site.say(f"note: {warning}")
        certificate, key = certificate_pem(issued.certificate), key_pem(issued.key)
        installing.carry_out(certificate_steps(self.request, certificate, key))
        self._issued = ""
        good = [each for each in older if not has_ended(each.not_after, now) and each.serial not in self.revoked]
        if good:
            self.site.say(f"note: {_tell_older(self.request.node, good)}")

    def tie_up(self) -> str:
        """What became of what was issued and may not have arrived; an operator revokes it."""
        if not self._issued:
            return ""
        serial, address = self._issued, self.request.login.address
        told = f"the certificate with serial {serial} was issued, and is not in its place on {address}"
        if self.site.revoke(serial):
            return f"{told}: it is revoked"
        return (
            f"{told}; nobody else has its key. To be sure that nobody ever uses it: "
            f"llmgw ctl cert revoke --serial {serial}"
        )


def _tell_older(node: str, records: list[Record]) -> str:
    until = describe_time(max(each.not_after for each in records))
    if len(records) == 1:
        told, way = f"an older certificate of {node} is good until {until}", records[0].serial
    else:
        told = f"{len(records)} older certificates of {node} are good, the last until {until}"
        way = f"SERIAL, for each of {', '.join(each.serial for each in records)}"
    return f"{told}; if somebody else may have the key: llmgw ctl cert revoke --serial {way}"


@contextmanager
def look(request: NodeRequest, site: Site) -> Iterator[Onboarding]:
    """What is to be done; raises `Refused`. One run at a time, as far as it changes anything."""
    names = (f"node {request.node}", request.login.known_name)
    with taken(site.ca_dir, *names) if site.remembers else nullcontext():
        yield from _look(request, site)


def _look(request: NodeRequest, site: Site) -> Iterator[Onboarding]:
    troubles: list[str] = []
    authority, notes = _open_authority(site, troubles)
    release = None if request.command else look_at_release(site.binary)
    with _reached(request, site, troubles) as session:
        machine = _look_at_machine(session, request, authority, troubles)
        release = release if machine is None else chosen_release(release, machine)
        facts = Facts(
            troubles=tuple(troubles),
            authority_notes=notes,
            known_nodes=_known_nodes(authority),
            online_from=site.online_from(request.node) if machine is not None else "",
            server=_look_at_server(request, authority, site),
            release=release,
            machine=machine,
        )
        for note in find_notes(request, facts):
            site.say(f"note: {note}")
        problems = find_problems(request, facts)
        if problems or session is None or machine is None or authority is None:
            raise Refused("\n".join(problems))
        if not machine.is_root:
            session.become = ("sudo", "-n")
        yield _plan(request, site, session, machine, authority, release)


def _plan(
    request: NodeRequest, site: Site, session: Session, machine: Machine, authority: Authority, release: Release | None
) -> Onboarding:
    standing = Standing(authority.certificate, site.now(), site.revoked())
    why_new = "--new-certificate asks for it" if request.new_certificate else ""
    why_new = why_new or why_new_certificate(request.node, machine, standing)
    wanted = Wanted(
        root=certificate_pem(authority.certificate),
        settings=render_settings(plan_values(request, machine.settings)).encode(),
        unit=render_unit(packaged_unit(UNIT_NAME), request.executable).encode(),
        release=release,
    )
    kept = "" if why_new else describe_kept(machine.certificate or b"", standing.now)
    plan = plan_steps(request, machine, wanted, why_new)
    return Onboarding(request, site, session, machine, authority, plan, kept, standing.revoked)


def _open_authority(site: Site, troubles: list[str]) -> tuple[Authority | None, tuple[str, ...]]:
    try:
        authority = Authority.open(site.ca_dir)
        authority.issued()
    except NoAuthority as error:
        troubles.append(str(error).replace("--dir names", "--ca-dir names"))
        return None, ()
    except LlmgwError as error:
        troubles.append(str(error))
        return None, ()
    end = describe_authority_end(authority.certificate, site.now())
    if end and has_ended(authority.certificate.not_valid_after_utc, site.now()):
        troubles.append(f"{end}: llmgw ca init --force makes a new authority, from which every machine needs new files")
        return authority, ()
    return authority, (end,) if end else ()


@contextmanager
def _reached(request: NodeRequest, site: Site, troubles: list[str]) -> Iterator[Session | None]:
    """`None`, and a trouble more, where there is no connection; none is made for words that cannot be."""
    if site.host_key and not is_key(site.host_key):
        troubles.append(f"--host-key {site.host_key!r}: expected SHA256:…, or a public key as in a .pub file")
        yield None
        return
    if request.login.problems() or name_problem(request.node):
        yield None
        return
    with ExitStack() as stack:
        try:
            session = stack.enter_context(open_session(request.login, site.known_hosts))
        except LlmgwError as error:
            troubles.extend((*unreadable(request.login.identity), str(error)))
            yield None
            return
        yield session if _is_believed(session, site, troubles) else None


def _is_believed(session: Session, site: Site, troubles: list[str]) -> bool:
    """A first contact is shown, and remembered."""
    try:
        check_named_key(session, site.host_key)
        if not session.new_keys:
            return True
        for line in session.new_keys:
            checked = "as --host-key names it" if site.host_key else "compare it with what the machine says"
            site.say(f"first contact with {session.login.known_name}: its key is {fingerprint_of(line)}; {checked}")
        if site.remembers and site.ca_dir.is_dir():
            remember_keys(session)
            site.say(f"it is remembered in {session.known_hosts}")
    except LlmgwError as error:
        troubles.append(str(error))
        return False
    return True


def _look_at_machine(
    session: Session | None, request: NodeRequest, authority: Authority | None, troubles: list[str]
) -> Machine | None:
    if session is None:
        return None
    root = certificate_pem(authority.certificate) if authority is not None else b"none"
    try:
        return look_at_machine(session, request, root)
    except LlmgwError as error:
        troubles.append(str(error))
        return None


def _known_nodes(authority: Authority | None) -> frozenset[str]:
    issued = authority.issued() if authority is not None else ()
    return frozenset(each.identity.name for each in issued if each.identity.role is Role.NODE)


def _look_at_server(request: NodeRequest, authority: Authority | None, site: Site) -> ServerSeen | None:
    server = server_of(request)
    if server is None or authority is None:
        return None
    return look_at_server(server, authority.certificate, site.now())
