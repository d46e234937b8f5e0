"""The store on real files: changes, groups, migrations, copies, a full disk, two processes."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from llmgw_core.store.change import (
    CertificateSeen,
    Change,
    EventHappened,
    NodeConnected,
    NodeLastSeen,
    NodeRemoved,
    NodeReported,
    SerialRevoked,
    SerialUnrevoked,
)
from llmgw_core.store.database import Database, StoreFailed, StoreFull
from llmgw_core.store.reading import (
    Event,
    Revocation,
    StoredNode,
    read_certificates,
    read_events,
    read_nodes,
    read_revocations,
)
from llmgw_core.store.statement import KEPT_EVENTS

CONNECTED = NodeConnected("gpu1", "node", "aa", "key-a", 9000.0, "10.0.0.1:5", "i1", 100.0)
REPORTED = NodeReported("gpu1", "i1", 1, '{"a":1}', 101.0)
TIMEOUT_S = 30
KILLED_AFTER_A_LOOK = """
import os, signal, subprocess, sys
from pathlib import Path
from llmgw_core.store.change import EventHappened
from llmgw_core.store.database import Database

path = Path(sys.argv[1])
writing, reading = Database(path), Database(path)
writing.commit([EventHappened("k", "", "before", 1.0)])
look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT id FROM event').fetchall(); c.close()"
subprocess.run([sys.executable, "-c", look, str(path)], check=True)
writing.commit([EventHappened("k", "", "after", 2.0)])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path / "store.db") as database:
        yield database


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    database = Database(path)
    try:
        yield database
    finally:
        database.close()


def only_node(database: Database) -> StoredNode:
    (node,) = read_nodes(database)
    return node


def sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


# changes


def test_a_node_that_connected_and_reported(database: Database) -> None:
    database.commit([CONNECTED, REPORTED])
    assert only_node(database) == StoredNode(
        "gpu1", "aa", "key-a", 9000.0, "10.0.0.1:5", "i1", 1, '{"a":1}', 100.0, 101.0
    )


def test_the_same_instance_goes_on_counting_and_a_new_one_begins_anew(database: Database) -> None:
    database.commit([CONNECTED, evolve(REPORTED, number=7)])
    database.commit([evolve(CONNECTED, now=200.0, address="10.0.0.2:5")])
    node = only_node(database)
    assert (node.report_number, node.facts, node.first_seen, node.last_seen) == (7, '{"a":1}', 100.0, 200.0)
    database.commit([evolve(CONNECTED, instance="i2", serial="bb", key_fingerprint="key-b")])
    node = only_node(database)
    assert (node.report_number, node.instance, node.facts, node.serial) == (0, "i2", '{"a":1}', "bb")


@pytest.mark.parametrize(
    ("change", "stored"),
    [
        (evolve(REPORTED, number=6, facts="new"), True),
        (evolve(REPORTED, number=5, facts="new"), False),
        (evolve(REPORTED, number=4, facts="new"), False),
        (evolve(REPORTED, number=6, facts="new", instance="i0"), False),
        (evolve(REPORTED, number=6, facts="new", name="gpu2"), False),
    ],
)
def test_a_report_counts_once_and_only_from_the_instance_that_is_connected(
    database: Database, change: Change, stored: bool
) -> None:
    database.commit([CONNECTED, evolve(REPORTED, number=5, facts="old")])
    for _ in range(2):
        database.commit([change])
        assert only_node(database).facts == ("new" if stored else "old")


def test_last_seen_and_removal(database: Database) -> None:
    database.commit([CONNECTED, NodeLastSeen("gpu1", 300.0)])
    assert only_node(database).last_seen == 300.0
    database.commit([NodeRemoved("gpu1"), NodeRemoved("gpu9"), NodeLastSeen("gpu1", 400.0)])
    assert read_nodes(database) == ()


def test_every_certificate_that_was_shown_under_a_name_is_kept_even_when_the_node_is_removed(
    database: Database,
) -> None:
    renewed = CertificateSeen("gpu1", "node", "bb", 9000.0, 200.0)
    database.commit([CONNECTED, renewed, renewed, evolve(CONNECTED, serial="cc", now=300.0), NodeRemoved("gpu1")])
    assert [each.serial for each in read_certificates(database, "gpu1")] == ["aa", "bb", "cc"]
    assert read_certificates(database, "gpu2") == ()


def test_revocations_come_and_go_and_the_first_reason_stays(database: Database) -> None:
    revoked = SerialRevoked("aa", "gpu1", "alice", "stolen", 100.0)
    database.commit([revoked, evolve(revoked, by="bob", reason="again", now=200.0)])
    assert read_revocations(database) == (Revocation("aa", "gpu1", 100.0, "alice", "stolen"),)
    database.commit([SerialUnrevoked("aa"), SerialUnrevoked("zz")])
    assert read_revocations(database) == ()


def test_events_oldest_first_the_last_ones_of_one_node_after_one_that_is_known(database: Database) -> None:
    database.commit([EventHappened("k", f"gpu{number % 2}", str(number), float(number)) for number in range(6)])
    assert read_events(database)[0] == Event(1, 0.0, "gpu0", "k", "0")
    assert [event.reason for event in read_events(database, limit=2)] == ["4", "5"]
    assert [event.reason for event in read_events(database, node="gpu1")] == ["1", "3", "5"]
    assert [event.reason for event in read_events(database, after=4)] == ["4", "5"]
    assert read_events(database, after=6) == ()


def test_the_last_events_are_kept(database: Database) -> None:
    database.commit([EventHappened("k", "", "", float(number)) for number in range(KEPT_EVENTS + 3)])
    assert database.read("SELECT count(*), min(at), max(at) FROM event")[0][:] == (KEPT_EVENTS, 3.0, KEPT_EVENTS + 2.0)


def test_what_an_earlier_release_kept_goes_a_little_with_each_event(database: Database) -> None:
    insert = "INSERT INTO event (id, at, node, kind, reason) VALUES (?, 0, '', 'k', '')"
    database._connection.executemany(insert, [(id,) for id in (*range(1, 30), KEPT_EVENTS + 50)])
    for left in (19, 9, 0):
        database.commit([EventHappened("k", "", "new", 1.0)])
        assert database.read("SELECT count(*) FROM event WHERE id < 30")[0][0] == left


def test_who_looks_into_the_store_from_outside_takes_nothing_from_it(tmp_path: Path) -> None:
    """What is stored after such a look is there after a kill."""
    path, script = tmp_path / "store.db", tmp_path / "control.py"
    script.write_text(KILLED_AFTER_A_LOOK, encoding="utf-8")
    done = subprocess.run([sys.executable, script, path], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == -9, done.stderr
    with opened(path) as database:
        assert [event.reason for event in read_events(database)] == ["before", "after"]


# groups


@pytest.mark.parametrize(
    "bad",
    [
        evolve(CONNECTED, serial=None),  # type: ignore[arg-type]
        evolve(REPORTED, number=2**63),
        evolve(CONNECTED, instance="\ud800"),
        EventHappened("k", "gpu1", object(), 1.0),  # type: ignore[arg-type]
    ],
    ids=["null", "over 64 bits", "half a character", "no value of SQL's"],
)
def test_a_group_is_stored_whole_or_not_at_all_and_the_next_one_works(database: Database, bad: Change) -> None:
    database.commit([CONNECTED])
    with pytest.raises(StoreFailed, match=f"^cannot write {database.path}: "):
        database.commit([EventHappened("k", "gpu1", "before", 1.0), bad, EventHappened("k", "gpu1", "after", 1.0)])
    assert read_events(database) == ()
    database.commit([EventHappened("k", "gpu1", "next", 1.0)])
    assert [event.reason for event in read_events(database)] == ["next"]


def test_a_question_that_cannot_be_asked_is_an_error_of_the_store(database: Database) -> None:
    with pytest.raises(StoreFailed, match="cannot read"):
        read_events(database, after=2**64)


# opening and migrations


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    with opened(tmp_path / "store.db") as database:
        database.commit([CONNECTED])
    with opened(tmp_path / "store.db") as database:
        assert only_node(database).name == "gpu1"


def make_migrations(directory: Path, **scripts: str) -> Path:
    for name, script in scripts.items():
        (directory / f"{name}.sql").write_text(script)
    return directory


@pytest.fixture(name="migrations")
def _migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "migrations"
    directory.mkdir()
    monkeypatch.setattr("llmgw_core.store.database.files", lambda package: directory)
    return directory


def test_an_older_schema_is_brought_up_with_what_is_in_it(tmp_path: Path, migrations: Path) -> None:
    make_migrations(migrations, a1="CREATE TABLE t (x INTEGER) STRICT; INSERT INTO t VALUES (7);")
    with opened(tmp_path / "store.db"):
        pass
    make_migrations(migrations, a2="ALTER TABLE t ADD COLUMN y TEXT NOT NULL DEFAULT 'new';", a3="CREATE TABLE u (z);")
    for _ in range(2):
        with opened(tmp_path / "store.db") as database:
            assert [tuple(row) for row in database.read("SELECT * FROM t")] == [(7, "new")]
            assert [tuple(row) for row in database.read("PRAGMA user_version")] == [(3,)]


def test_a_step_that_fails_leaves_the_step_before(tmp_path: Path, migrations: Path) -> None:
    make_migrations(migrations, a1="CREATE TABLE t (x);", a2="CREATE TABLE u (y); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreFailed, match="no such table: nowhere"):
        Database(tmp_path / "store.db")
    make_migrations(migrations, a2="CREATE TABLE u (y);")
    with opened(tmp_path / "store.db") as database:
        assert database.read("SELECT * FROM u") == []


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "store.db") as database:
        database.commit([CONNECTED])
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreFailed, match=r"^the store has schema 99, this release knows up to \d+; install a newer"):
        Database(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT name FROM node").fetchall() == [("gpu1",)]
        assert connection.execute("PRAGMA user_version").fetchall() == [(99,)]


@pytest.mark.parametrize("content", [b"no database, but a text that is long enough to be read as one" * 40])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreFailed, match=f"^cannot open {path}: file is not a database$"):
        Database(path)
    assert path.read_bytes() == content


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"^cannot open .*: unable to open database file$"):
        Database(tmp_path / "nowhere" / "store.db")


def test_both_openers_of_a_new_store_find_it_migrated(tmp_path: Path) -> None:
    with opened(tmp_path / "store.db") as writing, opened(tmp_path / "store.db") as reading:
        writing.commit([CONNECTED])
        assert only_node(reading).name == "gpu1"


# copies


def test_a_copy_is_a_whole_store_of_one_moment(database: Database, tmp_path: Path) -> None:
    database.commit([CONNECTED, REPORTED])
    target = tmp_path / "copy.db"
    database.back_up(target)
    database.commit([NodeRemoved("gpu1")])
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.db"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert sound(target)
    with opened(target) as copy:
        assert only_node(copy).facts == '{"a":1}'


def test_a_copy_replaces_nothing(database: Database, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(StoreFailed, match=r"copy\.db is there already; name a file that is not$"):
        database.back_up(target)
    assert target.read_text() == "precious"


@pytest.mark.parametrize("name", ["nowhere/copy.db", "x" * 300, "a\0b"])
def test_a_copy_that_cannot_be_made_is_one_line(database: Database, tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreFailed, match=r"^cannot back up to "):
        database.back_up(tmp_path / name)


# a full disk

SIZE_KIB = 512


@pytest.fixture(name="small")
def _small(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "tmpfs", mounted],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if made.returncode != 0:
        pytest.skip(f"no small file system: needs root and mount ({made.stderr.strip()})")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True, timeout=TIMEOUT_S)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def write_until_full(database: Database) -> tuple[int, StoreFull]:
    """How many events were stored, and the error that came then."""
    for stored in range(0, 10_000, 3):
        try:
            database.commit([EventHappened("k", "gpu1", "x" * 2000, 1.0)] * 3)
        except StoreFull as error:
            return stored, error
    raise AssertionError("it never became full")


def test_a_full_disk_is_told_clearly_harms_nothing_and_is_got_over(small: Path) -> None:
    path, ballast = small / "store.db", small / "ballast"
    with opened(path) as database:
        database.commit([CONNECTED, REPORTED])
        fill(ballast)
        stored, error = write_until_full(database)
        assert str(error) == (
            f"cannot write {path}: the disk is full; nothing of this is stored, make room and it works again"
        )
        assert len(read_events(database)) == stored
        assert only_node(database).report_number == 1
        ballast.unlink()
        database.commit([EventHappened("k", "gpu1", "room again", 2.0)])
        assert read_events(database)[-1].reason == "room again"
    assert sound(path)


def test_opening_on_a_full_disk_says_so(small: Path) -> None:
    fill(small / "ballast")
    with pytest.raises(StoreFull, match=r"^cannot open .*: the disk is full"):
        Database(small / "store.db")
    (small / "ballast").unlink()
    with opened(small / "store.db") as database:
        database.commit([CONNECTED])
        database.commit([EventHappened("k", "gpu1", "x" * 1000, 1.0)] * 10)
    fill(small / "ballast")
    try:
        with opened(small / "store.db") as database:
            assert only_node(database).name == "gpu1"
    except StoreFull:
        pass  # SQLite wants room for its shared memory even to read


def test_a_copy_to_a_full_disk_leaves_nothing_behind(small: Path, database: Database) -> None:
    database.commit([EventHappened("k", "gpu1", "x" * 1000, 1.0)] * SIZE_KIB)
    with pytest.raises(StoreFull, match=r"^cannot back up to .*the disk is full"):
        database.back_up(small / "copy.db")
    assert list(small.iterdir()) == []


# two processes

_COMMITS = """
import sys
from pathlib import Path
from llmgw_core.store.change import EventHappened
from llmgw_core.store.database import Database
database = Database(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    database.commit([EventHappened(sys.argv[2], "", str(number), 0.0)] * 2)
print("ready", flush=True)
sys.stdin.read()
"""


def committing(path: Path, kind: str, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _COMMITS, str(path), kind, str(times)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def count(database: Database) -> dict[str, Any]:
    return {row["kind"]: row["n"] for row in database.read("SELECT kind, count(*) AS n FROM event GROUP BY kind")}


def test_two_processes_write_and_both_stay(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with opened(path) as database:
        both = [committing(path, kind, 40) for kind in ("one", "two")]
        for each in both:
            each.communicate(timeout=TIMEOUT_S)
        assert [each.returncode for each in both] == [0, 0]
        assert count(database) == {"one": 80, "two": 80}


def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    process = committing(path, "one", 20)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    assert sound(path)
    with opened(path) as database:
        assert count(database) == {"one": 40}
