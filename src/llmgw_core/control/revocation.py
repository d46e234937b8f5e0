"""Revoking certificates, and taking it back.

Rules: whoever is being revoked is so in memory, and off its link, before anything is waited for; the store follows, and
a store that is full is told and undoes nothing; a certificate that was renewed meanwhile is revoked with the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import attrs
import trio

from llmgw_core.control.arguments import Arguments, BadQuestion, argument
from llmgw_core.control.fleet import Connection
from llmgw_core.control.plane import Plane, log
from llmgw_core.errors import LlmgwError
from llmgw_core.model.identity import Identity, Role, check_name
from llmgw_core.pki.certificate import BadSerial, parse_serial
from llmgw_core.store.change import Change, SerialRevoked, SerialUnrevoked
from llmgw_core.store.reading import Revocation, read_certificates, read_revocations, read_roles

STORED_WITHIN_S = 60.0
"""How long a revocation waits for its store; nothing cancels it before."""
REASON_CHARACTERS = 500


@attrs.frozen
class _Order:
    """Whom and what an operator revokes."""

    name: str
    by: str
    reason: str
    now: float
    identities: frozenset[Identity]
    serials: tuple[str, ...]

    def change(self, serial: str) -> SerialRevoked:
        return SerialRevoked(serial, self.name, self.by, self.reason, self.now)


async def revoke(plane: Plane, operator: str, arguments: Arguments) -> list[str]:
    """Revoke all certificates that were ever shown under a name, or one serial; close their links. The serials."""
    serial, name = _serial(arguments), argument(arguments, "name", str, "")
    reason = argument(arguments, "reason", str, "")[:REASON_CHARACTERS]
    if bool(serial) == bool(name):
        raise BadQuestion("give a name or a serial, and not both")
    if serial:
        revoked = await _carry_out(plane, _Order("", operator, reason, plane.now(), frozenset(), (serial,)))
        return [each + _if_never_shown(plane, each) for each in revoked]
    identities = _identities(plane, check_name(name), _role(arguments), operator)
    serials = _serials_of(plane, identities)
    return await _carry_out(plane, _Order(name, operator, reason, plane.now(), identities, serials))


async def unrevoke(plane: Plane, operator: str, arguments: Arguments) -> list[str]:
    """Take back the revocation of one serial, or of all under a name."""
    name, serial, role = argument(arguments, "name", str, ""), _serial(arguments), _role(arguments)
    found = [each.serial for each in plane.fleet.revoked.values() if _matches(each, name, serial)]
    if name:
        found = _of_one_role(plane, name, found, role)
    meant = {each: plane.fleet.revoked[each] for each in found}
    if not found:
        raise BadQuestion(f"nothing is revoked under {serial or name!r}; `llmgw ctl cert list` shows what is")
    changes = [SerialUnrevoked(each) for each in found]
    await plane.writer.write(*changes, plane.event("revocation taken back", name, f"by {operator}: {', '.join(found)}"))
    for each, revocation in meant.items():
        if plane.fleet.revoked.get(each) is revocation:  # else it was revoked again meanwhile
            del plane.fleet.revoked[each]
    return found


async def list_revocations(plane: Plane, operator: str, arguments: Arguments) -> list[dict[str, Any]]:
    return [attrs.asdict(each) for each in read_revocations(plane.database)]


def _serial(arguments: Arguments) -> str:
    given = argument(arguments, "serial", str, "")
    try:
        return parse_serial(given) if given else ""
    except BadSerial as error:
        raise BadQuestion(str(error)) from None


def _role(arguments: Arguments) -> Role | None:
    given = argument(arguments, "role", str, "")
    if not given:
        return None
    try:
        return Role(given)
    except ValueError:
        raise BadQuestion(f"role: {given[:40]!r} is none of {', '.join(each.value for each in Role)}") from None


def _matches(revocation: Revocation, name: str, serial: str) -> bool:
    return revocation.serial == serial or bool(name and revocation.name == name)


def _of_one_role(plane: Plane, name: str, serials: Sequence[str], role: Role | None) -> list[str]:
    roles = read_roles(plane.database, name)
    if role is not None:
        return [each for each in serials if roles.get(each) == role.value]
    several = sorted({roles[each] for each in serials if each in roles})
    if len(several) > 1:
        raise BadQuestion(f"{name} is {' and '.join(several)}: give --role")
    return list(serials)


def _identities(plane: Plane, name: str, role: Role | None, operator: str) -> frozenset[Identity]:
    """The one identity that is meant."""
    shown = {Role(each.role) for each in read_certificates(plane.database, name)}
    shown |= {each.identity.role for each in plane.fleet.connections() if each.identity.name == name}
    if role is None and (len(shown) > 1 or name == operator):
        whose = "you are one of them" if name == operator else "only one of them is meant"
        told = " and ".join(sorted(each.value for each in shown))
        raise BadQuestion(f"{name} is the name of {told}, and {whose}: give --role")
    meant = shown if role is None else shown & {role}
    if not meant:
        who = f"{role.value} {name}" if role else name
        raise BadQuestion(f"no certificate of {who} was ever shown here; give its serial (`llmgw ca list` has it)")
    return frozenset(Identity(each, name) for each in meant)


def _serials_of(plane: Plane, identities: Collection[Identity]) -> tuple[str, ...]:
    """Every certificate that was shown for these, stored or not."""
    stored = [
        each.serial
        for identity in identities
        for each in read_certificates(plane.database, identity.name)
        if each.role == identity.role.value
    ]
    live = [each.serial for each in plane.fleet.connections() if each.identity in identities]
    return tuple(dict.fromkeys([*stored, *live]))


async def _carry_out(plane: Plane, order: _Order) -> list[str]:
    plane.fleet.barred.update(order.identities)
    try:
        _mark(plane, order, order.serials)
        with trio.move_on_after(STORED_WITHIN_S, shield=True):
            return await _close_and_store(plane, order)
    finally:
        plane.fleet.barred.subtract(order.identities)
    raise BadQuestion(_not_stored(f"the store has not answered within {STORED_WITHIN_S:g} s"))


def _mark(plane: Plane, order: _Order, serials: Iterable[str]) -> None:
    for each in serials:
        made = Revocation(each, order.name, order.now, order.by, order.reason)
        # Another object, though it says the same: an earlier one may be being taken back.
        plane.fleet.revoked[each] = attrs.evolve(plane.fleet.revoked.get(each, made))


async def _close_and_store(plane: Plane, order: _Order) -> list[str]:
    """All at once: one of the links may be the one that this was asked on, and one may be dead and slow to close."""
    failed: LlmgwError | None = None
    revoked = list(order.serials)
    async with trio.open_nursery() as nursery:
        for connection in plane.fleet.connections_of(order.serials, order.identities):
            nursery.start_soon(_end_revoked, connection)
        try:
            revoked += await _store(plane, order)
        except LlmgwError as error:
            failed = error
    if failed is not None:
        raise BadQuestion(_not_stored(str(failed)))
    return revoked


def _not_stored(why: str) -> str:
    return f"revoked until the control plane starts again, for it could not be stored: {why}; revoke again then"


async def _store(plane: Plane, order: _Order) -> list[str]:
    """What a renewal that was under way has stored before us is revoked as well: those serials."""
    told = f"by {order.by}: {order.reason or 'no reason'}"
    await plane.writer.write(*map(order.change, order.serials), plane.event("certificate revoked", order.name, told))
    later = [each for each in _serials_of(plane, order.identities) if each not in order.serials]
    _mark(plane, order, later)
    if later:
        await plane.writer.write(*map(order.change, later))
    return later


async def _end_revoked(connection: Connection) -> None:
    who = f"{connection.identity.role.value} {connection.identity.name}"
    reason = f"{who} refused: its certificate, serial {connection.serial}, is revoked"
    keys = {"node": connection.identity.name, "address": connection.caller.address, "reason": reason}
    log.warning("refused", extra=keys)
    await connection.end(reason)


def _if_never_shown(plane: Plane, serial: str) -> str:
    live = any(each.serial == serial for each in plane.fleet.connections())
    known: Sequence[Change | Any] = plane.database.read("SELECT 1 FROM certificate WHERE serial = ?", serial)
    return "" if live or known else ", which was never shown here: compare it with `llmgw ca list`"
