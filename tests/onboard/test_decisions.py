"""What a machine is told it lacks, whether its certificate stays, and which steps it takes."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from llmgw_core.model.identity import Identity, Role
from llmgw_core.onboard.awaiting import parse_heard
from llmgw_core.onboard.certificate import Standing, why_new_certificate
from llmgw_core.onboard.checks import chosen_release, find_notes, find_problems
from llmgw_core.onboard.facts import Facts, Family, Machine, Release, ServerSeen
from llmgw_core.onboard.onboarding import _tell_older
from llmgw_core.onboard.probe import ANCHORS, TOOLS, marker_of, parse_probe
from llmgw_core.onboard.request import ETC, SETTINGS, UNFINISHED, UNIT, Login, NodeRequest
from llmgw_core.onboard.steps import Plan, Put, Run, Wanted, certificate_steps, plan_steps
from llmgw_core.onboard.unit import executable_problem, render_unit
from llmgw_core.pki.authority import Authority
from llmgw_core.pki.certificate import Order, Signer, make_authority_certificate, make_key, make_leaf, serial_text
from llmgw_core.pki.files import certificate_pem
from llmgw_core.pki.names import AlternativeNames
from llmgw_core.pki.record import Record
from llmgw_core.provision.awaiting import RELEASE

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REQUEST = NodeRequest(node="n1", login=Login(address="10.0.0.144"), server="https://10.0.0.140:7443")
GOOD = Machine(
    is_root=True,
    becomes_root=True,
    hostname="n1",
    system="Linux",
    architecture="x86_64",
    os_name="Debian",
    family=Family.DEBIAN,
    python="python3 3.11",
    free_kib={"/usr/local/bin": 1 << 20, "/etc": 1 << 20, "/var": 1 << 20},
    tools=frozenset(TOOLS),
)
RELEASE_FILE = Release("/r/llmgw", "d" * 64, 50 << 20, "linux-amd64")
SERVER = ServerSeen(("DNS:llmgw", "IP:10.0.0.140"))
FACTS = Facts(server=SERVER, release=RELEASE_FILE, machine=GOOD)


def with_machine(**more: Any) -> Facts:
    return attrs.evolve(FACTS, machine=attrs.evolve(GOOD, **more))


def test_a_good_machine_has_no_problem_and_no_note() -> None:
    assert find_problems(REQUEST, FACTS) == ()
    assert find_notes(REQUEST, FACTS) == ()


PROBLEMS = {
    "no sudo": (with_machine(is_root=False, becomes_root=False, sudo_said="a password is required"), "NOPASSWD"),
    "no systemd": (with_machine(has_systemd=False), "runs no systemd"),
    "no tools": (with_machine(tools=GOOD.tools - {"mktemp", "base64"}), "has no mktemp, base64"),
    "no trust": (with_machine(tools=GOOD.tools - {"update-ca-certificates"}), "ca-certificates"),
    "no python": (with_machine(python="", family=Family.REDHAT, other_python="python3 3.9"), "dnf install python3.12"),
    "no room": (with_machine(free_kib={"/var": 100 << 10}), "/var has 100.0 MiB free, and needs 251.0"),
    "another machine": (
        attrs.evolve(FACTS, online_from="10.0.0.9:5"),
        "n1 is online from 10.0.0.9:5, and no agent runs at 10.0.0.144: another machine has that name",
    ),
    "read-only": (with_machine(closed=("/etc",)), "/etc cannot be written to there: is it mounted read-only?"),
    "other node": (with_machine(settings='node = "n2"\n'), "is node n2 already"),
    "other platform": (with_machine(architecture="aarch64"), "is for linux-amd64, and 10.0.0.144 is Linux aarch64"),
    "other name": (attrs.evolve(FACTS, server=ServerSeen(("DNS:llmgw",))), "would look for IP:10.0.0.140"),
    "other authority": (attrs.evolve(FACTS, server=attrs.evolve(SERVER, ours=False)), "another authority"),
    "ended": (attrs.evolve(FACTS, server=attrs.evolve(SERVER, fault="expired on …")), "expired on"),
    "no release": (attrs.evolve(FACTS, release=None), "--command /opt/llmgw/bin/llmgw"),
    "bad release": (attrs.evolve(FACTS, release=Release("/r", trouble="is empty")), "--binary /r is empty"),
    "trouble": (attrs.evolve(FACTS, troubles=("ssh does not reach",), machine=None), "ssh does not reach"),
}


@pytest.mark.parametrize(("facts", "said"), PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_is_one_line_with_its_way_out(facts: Facts, said: str) -> None:
    (problem,) = find_problems(REQUEST, facts)
    assert said in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("server", "name"),
    [("https://[2001:DB8:0::1]", "IP:2001:db8::1"), ("https://Control.example", "DNS:control.EXAMPLE")],
)
def test_a_server_is_known_by_its_certificates_name_however_it_is_written(server: str, name: str) -> None:
    facts = attrs.evolve(FACTS, server=ServerSeen((name,)))
    assert find_problems(attrs.evolve(REQUEST, server=server), facts) == ()


def test_a_node_that_is_online_and_runs_here_is_this_machine() -> None:
    assert find_problems(REQUEST, attrs.evolve(with_machine(active=True), online_from="10.0.0.144:5")) == ()


def test_a_file_for_another_platform_is_not_needed_where_the_machine_has_its_own() -> None:
    has_own = attrs.evolve(GOOD, release_says="llmgw 0.1.0 (v0.1.0, 0123abcd)")
    arm, runs = attrs.evolve(has_own, architecture="aarch64"), attrs.evolve(RELEASE_FILE, given=False)
    assert chosen_release(runs, arm) is None
    assert chosen_release(runs, attrs.evolve(arm, release_says="")) == runs
    assert chosen_release(runs, has_own) == runs
    assert chosen_release(RELEASE_FILE, arm) == RELEASE_FILE


def test_a_machine_with_the_certificate_of_another_node_is_refused_and_one_of_another_role_is_not() -> None:
    pem = {role: a_certificate(an_authority(), "n2", role) for role in (Role.NODE, Role.SERVER)}
    beside = {"/etc/llmgw/n2.crt": pem[Role.NODE], "/etc/llmgw/control.crt": pem[Role.SERVER], "/etc/llmgw/x.crt": b"x"}
    (problem,) = find_problems(REQUEST, with_machine(beside=beside))
    assert "10.0.0.144 is node n2 already (/etc/llmgw/n2.crt): is --addr right?" in problem
    assert problem.endswith("take n2 out of the fleet, and remove there: rm -f /etc/llmgw/n2.crt /etc/llmgw/n2.key")
    assert find_problems(attrs.evolve(REQUEST, node="n2"), with_machine(beside=beside)) == ()
    (both,) = find_problems(REQUEST, with_machine(beside=beside, settings='node = "n2"'))
    assert "(/etc/llmgw/agent.toml, /etc/llmgw/n2.crt)" in both
    assert len(find_problems(REQUEST, with_machine(beside=beside, settings='node = "n3"'))) == 2


NOTES = {
    "another node's name": (
        attrs.evolve(with_machine(hostname="n7.example"), known_nodes=frozenset({"n7"})),
        "calls itself n7.example, and n7 is another node's name: is --addr right?",
    ),
    "host name": (with_machine(hostname="vm7"), "hostnamectl set-hostname n1"),
    "behind": (with_machine(clock_ahead_s=-1035.0), "17 minutes behind, so a new certificate is not yet valid there"),
    "ahead": (with_machine(clock_ahead_s=90.0), "1 minute ahead: timedatectl"),
    "years ahead": (with_machine(clock_ahead_s=9e7), "ahead, so that certificates end there before their time"),
    "family": (with_machine(family=Family.OTHER), "the agent trusts it, and nothing else there does"),
    "server away": (attrs.evolve(FACTS, server=ServerSeen(trouble="Connection refused")), "Connection refused"),
    "server ends": (
        attrs.evolve(FACTS, server=attrs.evolve(SERVER, left="29 days")),
        "ends in 29 days: is there an authority (--ca-dir) that renews it? Else the first lines of `llmgw units",
    ),
    "authority ends": (attrs.evolve(FACTS, authority_notes=("the authority ends",)), "the authority ends"),
}


ADAPTERS = {
    "none at all": (("ib-b",), "", frozenset(), "has no adapter in /sys/class/infiniband: its agent does not start"),
    "none of those": (("ib-b:mlx5_2,mlx5_9",), "/t", frozenset({"mlx5_2"}), "has mlx5_2 in /t, and no mlx5_9: its"),
    "all": (("ib-b:mlx5_2",), "", frozenset({"mlx5_2"}), ""),
    "no fabric": (("none",), "", frozenset(), ""),
    "nothing is said of fabrics": ((), "", frozenset(), ""),
}


@pytest.mark.parametrize(("fabrics", "tree", "adapters", "said"), ADAPTERS.values(), ids=ADAPTERS)
def test_a_fabric_without_its_adapters_is_noted(
    fabrics: tuple[str, ...], tree: str, adapters: frozenset[str], said: str
) -> None:
    request = attrs.evolve(REQUEST, fabrics=fabrics, ib_root=tree)
    notes = find_notes(request, with_machine(adapters=adapters))
    assert (len(notes), said in "".join(notes)) == (1 if said else 0, True)
    assert find_notes(request, with_machine(adapters=frozenset({"x"}), settings='ib_root = "/other"')) == () or tree


@pytest.mark.parametrize(("facts", "said"), NOTES.values(), ids=NOTES)
def test_what_stops_nothing_is_a_note(facts: Facts, said: str) -> None:
    assert find_problems(REQUEST, facts) == ()
    (note,) = find_notes(REQUEST, facts)
    assert said in note


@cache
def an_authority() -> Signer:
    key = make_key()
    return Signer(make_authority_certificate("a", key, NOW, 3650), key)


def a_certificate(signer: Signer, node: str, role: Role = Role.NODE, days: int = 90) -> bytes:
    names = AlternativeNames(("llmgw",)) if role is Role.SERVER else AlternativeNames()
    return certificate_pem(make_leaf(Order(Identity(role, node), names, days), make_key().public_key(), signer, NOW))


def a_machine_with(signer: Signer, node: str = "n1", days: int = 90, **more: Any) -> Machine:
    told = {"certificate": a_certificate(signer, node, days=days), "key_fits": True, "key_mode": "600", **more}
    return attrs.evolve(GOOD, **told)


@pytest.mark.parametrize(
    ("more", "days_later", "said"),
    [
        ({}, 0, ""),
        ({}, 59, ""),
        ({}, 61, "its own has 29 days left"),
        ({}, 92, "its own expired 2 days ago"),
        ({"node": "n2"}, 0, "its own is for llmgw://node/n2"),
        ({"key_fits": False}, 0, "there is no key that belongs to its own"),
        ({"key_mode": "644"}, 0, "its key was open to others (mode 644)"),
        ({"certificate": None}, 0, "it has none"),
        ({"certificate": b"nothing"}, 0, "its own is not of this authority, or no certificate"),
    ],
)
def test_a_certificate_stays_as_long_as_it_is_good(more: dict[str, Any], days_later: int, said: str) -> None:
    standing = Standing(an_authority().certificate, NOW + timedelta(days=days_later))
    assert why_new_certificate("n1", a_machine_with(an_authority(), **more), standing) == said


def test_a_certificate_of_another_authority_or_one_that_is_revoked_does_not_stay(tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "ca", NOW, name="a").signer
    machine = a_machine_with(other)
    assert "not of this authority" in why_new_certificate("n1", machine, Standing(an_authority().certificate, NOW))
    from cryptography import x509

    serial = serial_text(x509.load_pem_x509_certificate(machine.certificate or b""))
    assert why_new_certificate("n1", machine, Standing(other.certificate, NOW, (serial,))).endswith("is revoked")


def test_older_certificates_are_one_line_however_many() -> None:
    identity = Identity(Role.NODE, "n1")
    records = [
        Record(serial, identity, NOW, NOW + timedelta(days=days), AlternativeNames(), "", "")
        for serial, days in (("0a", 9), ("0b", 3))
    ]
    assert "2 older certificates of n1 are good, the last until 2026-12-09T12:00:00Z" in _tell_older("n1", records)
    assert _tell_older("n1", records).endswith("llmgw ctl cert revoke --serial SERIAL, for each of 0a, 0b")
    assert _tell_older("n1", records[1:]).endswith("llmgw ctl cert revoke --serial 0b")


def test_a_clock_beyond_all_time_is_none() -> None:
    machine = parse_probe(f"clock={'9' * 400}\nwhole=yes\n", 100.0)
    assert machine is not None
    assert machine.clock_ahead_s == -100.0


WANTED = Wanted(b"root\n", b"settings\n", b"unit\n", RELEASE_FILE)


def as_wanted(**more: Any) -> Machine:
    puts = (Put.of(f"{ETC}/ca.crt", WANTED.root), Put.of(SETTINGS, WANTED.settings), Put.of(UNIT, WANTED.unit))
    anchors = {ANCHORS[Family.DEBIAN]: puts[0].sha256}
    digests = {RELEASE: RELEASE_FILE.sha256, **{put.path: put.sha256 for put in puts}, **anchors}
    told = {"digests": digests, "trusts_root": True, "enabled": True, "active": True, **more}
    return attrs.evolve(GOOD, **told)


def without(path: str) -> dict[str, str]:
    return {name: digest for name, digest in as_wanted().digests.items() if name != path}


def paths_and_words(plan: Plan) -> list[str]:
    return [step.path if isinstance(step, Put) else " ".join(step.words) for step in (*plan.before, *plan.after)]


def test_f25_where_all_is_there_nothing_is_done_and_no_unit_is_reloaded() -> None:
    assert plan_steps(REQUEST, as_wanted(), WANTED, "") == Plan((), "", ())
    upgraded = plan_steps(REQUEST, as_wanted(digests=without(RELEASE)), WANTED, "")
    restart = "systemctl restart llmgw-agent.service"
    begin, end = [f"mkdir -p -m 755 {ETC}", UNFINISHED], [restart, f"rm -f {UNFINISHED}"]
    assert paths_and_words(upgraded) == [*begin, RELEASE, *end]
    reloaded = plan_steps(REQUEST, as_wanted(digests=without(UNIT)), WANTED, "")
    assert paths_and_words(reloaded) == [*begin, UNIT, "systemctl daemon-reload", *end]
    for unfinished in ({"unfinished": True}, {"active": False}):
        assert paths_and_words(plan_steps(REQUEST, as_wanted(**unfinished), WANTED, "")) == [*begin, *end]
    interrupted = plan_steps(REQUEST, as_wanted(needs_reload=True), WANTED, "")
    assert "systemctl daemon-reload" in paths_and_words(interrupted)


def test_a_root_that_took_anothers_place_is_trusted_anew() -> None:
    other = {**as_wanted().digests, ANCHORS[Family.DEBIAN]: "other"}
    assert "update-ca-certificates --fresh" in paths_and_words(
        plan_steps(REQUEST, as_wanted(digests=other), WANTED, "")
    )
    half = paths_and_words(plan_steps(REQUEST, as_wanted(trusts_root=False), WANTED, ""))
    assert "update-ca-certificates" in half
    assert ANCHORS[Family.DEBIAN] not in half


def test_a_key_is_in_no_repr_and_in_no_command() -> None:
    steps = certificate_steps(REQUEST, b"public\n", b"very secret\n")
    assert "very secret" not in repr(steps)
    assert not [step for step in steps if isinstance(step, Run) and "very" in " ".join(step.words)]
    assert [step.mode for step in steps if isinstance(step, Put) and step.secret] == ["600"]


def test_an_answer_that_is_cut_short_is_none() -> None:
    assert parse_probe("root=yes\nclock=1\n", 0.0) is None
    machine = parse_probe("root=yes\npython=python3 3.9\npython=python3.12 3.12\nclock=90\nwhole=yes\n", 100.0)
    assert machine is not None
    assert (machine.python, machine.other_python, machine.clock_ahead_s) == ("python3.12 3.12", "", -10.0)


def test_the_mark_of_a_root_is_a_whole_line_of_it() -> None:
    pem = certificate_pem(an_authority().certificate)
    assert len(marker_of(pem)) == 64
    assert marker_of(pem).encode() in pem


@pytest.mark.parametrize(
    ("text", "connected", "said"),
    [
        ("state=active\nlink=2026 INFO connected server=https://x", True, ""),
        ("state=failed\nlink=2026 INFO connected server=https://x", False, "its unit is failed"),
        ('state=active\nlink=T WARNING not connected reason="a \\"b\\" c" again_in_s=1', False, 'a "b" c'),
        ("state=active\nlink=T WARNING not connected reason=deaf again_in_s=1", False, "deaf"),
        ("state=activating\nsaid=llmgw: node: is missing", False, "the agent does not start: node: is missing"),
        ("state=active\nlink=", False, ""),
        ("state=inactive\nlink=", False, "its unit is inactive"),
        ("", False, "its unit is not known"),
    ],
)
def test_what_the_agents_log_says_of_its_link(text: str, connected: bool, said: str) -> None:
    heard = parse_heard(text)
    assert (heard.connected, heard.reason) == (connected, said)


FINAL = (
    "https://c:7443 refused us: node n1 refused: its certificate, serial 0a, is revoked",
    "node n1 refused: its certificate's role is operator, and this needs node",
    "node n2 refused: its certificate's common name is n1",
    "https://c:7443: the peer's certificate was issued by another authority than ours: compare both sides' ca.crt",
    "https://c:7443 refused us: the peer refused us: it does not trust the authority that issued our certificate",
    "https://c:7443: the server's certificate is for other names: Hostname mismatch; it is valid for DNS:llmgw",
    "n1 refused: it speaks protocol 1 (release 0.1.0), older than this control plane",
)
PASSING = (
    "cannot connect to https://c:7443: Connection refused",
    "node n1 refused: its certificate is not yet valid: it begins on 2027-01-01 and the clock says 2026",
    "https://c:7443: the peer's certificate expired on 2026-01-01, 3 years ago (this machine's clock says 2029)",
    "node n1 refused: it is connected from 10.0.0.1 with another key; two machines claim one name",
)


@pytest.mark.parametrize(
    ("reason", "is_final"), [*((each, True) for each in FINAL), *((each, False) for each in PASSING)]
)
def test_only_what_time_cannot_mend_ends_the_wait(reason: str, is_final: bool) -> None:
    heard = parse_heard(f"state=active\nlink=T WARNING not connected reason={json.dumps(reason)} again_in_s=1")
    assert (heard.reason, heard.is_final) == (reason, is_final)


def test_an_agent_that_complains_anew_after_each_start_is_not_waited_for() -> None:
    ends = [parse_heard(f"state=activating\nrestarts={n}\nsaid=llmgw: no adapters").is_final for n in ("", 0, 1, 2)]
    assert ends == [False, False, False, True]
    assert not parse_heard("state=activating\nrestarts=9\nsaid=Killed").is_final
    of_click = parse_heard("state=failed\nrestarts=2\nsaid=Error: cannot read agent.toml")
    assert (of_click.reason, of_click.is_final) == ("the agent does not start: cannot read agent.toml", True)


def test_an_executable_stands_in_a_unit_as_systemd_reads_it() -> None:
    unit = "ExecStart=/usr/local/bin/llmgw agent\n"
    assert render_unit(unit, RELEASE) == unit
    assert render_unit(unit, "/opt/my llmgw 100%/llmgw") == 'ExecStart="/opt/my llmgw 100%%/llmgw" agent\n'
    for bad in ("llmgw", "/opt/$x/llmgw", "/opt/\n/llmgw", '/opt/"x"/llmgw', "/opt/it's/llmgw", "/opt/\\/llmgw"):
        assert executable_problem(bad)
    assert not executable_problem("/opt/my llmgw/llmgw")
