"""Gathers the facts: of this host, of the control plane's certificate, of the machine. Changes nothing."""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from zipfile import is_zipfile

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from llmgw_core.errors import LlmgwError
from llmgw_core.net.call import Server
from llmgw_core.net.tls import Peek, explain_tls_error
from llmgw_core.onboard.facts import Machine, Release, ServerSeen
from llmgw_core.onboard.probe import parse_probe, probe_arguments, probe_script
from llmgw_core.onboard.request import NodeRequest
from llmgw_core.onboard.ssh import Session
from llmgw_core.pki.identity import describe_time_fault, list_names
from llmgw_core.pki.validity import describe_left, renewal_due
from llmgw_core.provision.image import digest_of
from llmgw_core.provision.words import last_words

PROBE_S = 120.0
SERVER_S = 5.0
_HEAD_BYTES = 4096
_PLATFORM = re.compile(rb"^# .* for ((?:linux|darwin)-[a-z0-9_]+) \(", re.MULTILINE)


def look_at_release(given: Path | None) -> Release | None:
    """`--binary`, or the self-contained file that this program runs from; `None`: it runs from none."""
    runs = os.environ.get("LLMGW_FILE", "")
    path = given or (Path(runs) if runs else None)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        found = _PLATFORM.search(head)
        if found is None or not is_zipfile(path):
            why = "is no file of a release" if found is None else "is cut short: compare it with SHA256SUMS"
            return Release(str(path), trouble=why, given=given is not None)
        size, named = path.stat().st_size, found[1].decode()
        return Release(str(path.absolute()), digest_of(path), size, named, given=given is not None)
    except OSError as error:
        return Release(str(path), trouble=f"cannot be read: {error.strerror}", given=given is not None)


def look_at_server(server: Server, root: x509.Certificate, now: datetime) -> ServerSeen:
    """What it shows to anybody; nothing is trusted, and nothing said."""
    try:
        certificate = _peek(server)
    except (OSError, ssl.SSLError, UnicodeError) as error:
        return ServerSeen(trouble=explain_tls_error(error))
    try:
        certificate.verify_directly_issued_by(root)
        ours = True
    except (ValueError, TypeError, InvalidSignature):
        ours = False
    fault = describe_time_fault(certificate, now, "this host's clock") or ""
    end = certificate.not_valid_after_utc
    is_due = not fault and renewal_due(certificate.not_valid_before_utc, end, now)
    return ServerSeen(list_names(certificate), ours, fault, describe_left(end, now) if is_due else "")


def _peek(server: Server) -> x509.Certificate:
    peek, deadline = Peek(), time.monotonic() + SERVER_S
    with socket.create_connection((server.host, server.port), SERVER_S) as connection:
        connection.sendall(peek.hello)
        while time.monotonic() < deadline:
            received = connection.recv(65536)
            if not received:
                raise OSError("it closed the connection: is that a control plane?")
            if (found := peek.feed(received)) is not None:
                return found
    raise OSError(f"it did not answer within {SERVER_S:g} s")


def look_at_machine(session: Session, request: NodeRequest, root_pem: bytes) -> Machine:
    """Raises where the machine does not answer as a machine with a shell does."""
    begun = time.time()  # noqa: TID251 - it is held against the machine's clock
    ended = session.run(("sh", "-s", "--", *probe_arguments(request, root_pem)), PROBE_S, said=probe_script())
    now_s = (begun + time.time()) / 2  # noqa: TID251
    machine = parse_probe(ended.stdout, now_s)
    if machine is None and ended.code is None:
        raise LlmgwError(
            f"{session.login.address} lets us in, and did not answer within {PROBE_S:g} s: is a disk there, or a "
            "program, stuck?"
        )
    if machine is None:
        said = last_words(ended.output) or "nothing"
        raise LlmgwError(
            f"{session.login.address} does not answer as a machine with a shell: it says {said}; "
            "is it another --ssh-user?"
        )
    return machine


def unreadable(path: str) -> Sequence[str]:
    """What to say of a private key that ssh could not use."""
    if not path or os.access(path, os.R_OK):
        return ()
    return (f"--ssh-identity {path}: there is no such file, or it cannot be read",)
