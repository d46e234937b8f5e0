"""Whether the certificate on a machine goes on being good, or it gets a new one.

In: what lies there, the authority, what was revoked, now.  Out: a reason for a new one; empty: keep it.  Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from attrs import frozen
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from llmgw_core.model.identity import Identity, Role
from llmgw_core.onboard.facts import Machine
from llmgw_core.pki.certificate import serial_text
from llmgw_core.pki.identity import NotAnIdentity, read_identity
from llmgw_core.pki.validity import describe_left, describe_time, renewal_due

KEY_MODES = ("600", "400")


@frozen
class Standing:
    """What the authority knows."""

    root: x509.Certificate
    now: datetime
    revoked: Collection[str] = ()
    """Serials, where an operator could ask."""


def why_new_certificate(node: str, machine: Machine, standing: Standing) -> str:
    """Goes on after `a new certificate, since`."""
    if machine.certificate is None:
        return "it has none"
    try:
        certificate = x509.load_pem_x509_certificate(machine.certificate)
        identity = read_identity(certificate)
        certificate.verify_directly_issued_by(standing.root)
    except NotAnIdentity as error:
        return error.reason
    except (ValueError, TypeError, InvalidSignature):
        return "its own is not of this authority, or no certificate"
    if identity != Identity(Role.NODE, node):
        return f"its own is for {identity}"
    return _why_used_up(certificate, standing) or _why_no_key(machine)


def other_nodes(node: str, machine: Machine) -> dict[str, str]:
    """Which other nodes' certificates lie on the machine, by path; those of other roles may well lie there."""
    found = {}
    for path, pem in machine.beside.items():
        try:
            identity = read_identity(x509.load_pem_x509_certificate(pem))
        except (ValueError, NotAnIdentity):
            continue
        if identity.role is Role.NODE and identity.name != node:
            found[path] = identity.name
    return found


def describe_kept(pem: bytes, now: datetime) -> str:
    """`good for 61 days, until …`."""
    end = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    return f"good for {describe_left(end, now)}, until {describe_time(end)}"


def _why_used_up(certificate: x509.Certificate, standing: Standing) -> str:
    serial, end = serial_text(certificate), certificate.not_valid_after_utc
    if serial in standing.revoked:
        return f"its own, serial {serial}, is revoked"
    if renewal_due(certificate.not_valid_before_utc, end, standing.now):
        left = describe_left(end, standing.now)
        return f"its own {left}" if left.startswith("expired") else f"its own has {left} left"
    return ""


def _why_no_key(machine: Machine) -> str:
    if not machine.key_fits:
        return "there is no key that belongs to its own"
    if machine.key_mode not in KEY_MODES:
        return f"its key was open to others (mode {machine.key_mode})"
    return ""
