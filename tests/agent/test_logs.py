"""Reading a shard's log in parts: bounded, over rotations, over generations."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_core.agent.logs import MOST_BYTES, read_log
from llmgw_core.agent.shard_files import ShardFiles
from llmgw_core.wire.message import LogRead, ReadLog


@pytest.fixture
def files(tmp_path: Path) -> ShardFiles:
    return ShardFiles(tmp_path)


def write(files: ShardFiles, number: int, text: str, generation: int = 1) -> Path:
    path = files.directory("m/1", 0, generation) / "logs" / f"{number}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
    return path


def read(files: ShardFiles, cursor: str = "", lines: int = 100, **more: int | bool) -> LogRead:
    return read_log(files, ReadLog(7, "m/1", 0, cursor=cursor, lines=lines, **more))  # type: ignore[arg-type]


def test_the_last_lines_over_files(files: ShardFiles) -> None:
    write(files, 1, "a\nb\n")
    write(files, 2, "c\nd")
    assert read(files, lines=3).text == "b\nc\nd"
    assert read(files, lines=0).text == ""
    assert (read(files).text, read(files).generation, read(files).id) == ("a\nb\nc\nd", 1, 7)


def test_a_cursor_goes_on_over_a_rotation(files: ShardFiles) -> None:
    write(files, 1, "a\n")
    first = read(files)
    assert read(files, first.cursor).text == ""
    write(files, 1, "b\n")
    write(files, 2, "c\n")
    second = read(files, first.cursor)
    assert second.text == "b\nc\n"
    assert read(files, second.cursor).text == ""


def test_what_was_rotated_away_is_said(files: ShardFiles) -> None:
    old = write(files, 1, "a\n")
    cursor = read(files).cursor
    old.unlink()
    write(files, 2, "b\n")
    assert read(files, cursor).text == "llmgw: a part of the log was rotated away\nb\n"


def test_a_part_is_bounded_and_cuts_no_character(files: ShardFiles) -> None:
    text = "x" + "é" * MOST_BYTES
    write(files, 1, "")
    cursor = read(files).cursor
    write(files, 1, text)
    got = ""
    while (part := read(files, cursor)).text:
        assert len(part.text.encode()) <= MOST_BYTES
        got, cursor = got + part.text, part.cursor
    assert got == text


def test_who_follows_is_taken_to_the_next_generation(files: ShardFiles) -> None:
    write(files, 1, "a\n")
    cursor = read(files).cursor
    write(files, 1, "end\n")
    write(files, 1, "new\n", generation=3)
    ended = read(files, cursor)
    assert (ended.text, ended.generation) == ("end\n", 1)
    newer = read(files, ended.cursor)
    assert (newer.text, newer.generation) == ("new\n", 3)
    assert read(files, newer.cursor).text == ""
    assert read(files, generation=1).text == "a\nend\n"


def test_what_is_not_there_is_a_reason(files: ShardFiles) -> None:
    assert read(files).reason == "no log of m/1#0 is kept here"
    write(files, 1, "a\n")
    assert read(files, generation=9).reason == "no log of generation 9 of m/1#0 is kept here"
    assert read(files, first_failure=True).reason == "no log of a first failure of m/1#0 is kept here"
    assert read(files, cursor="garbage").text == "a\n"
    assert read(files, cursor="9:9:9").text == "a\n"


def test_the_first_failure_of_a_loop_is_kept_with_the_last_generations(files: ShardFiles) -> None:
    for generation in range(1, 8):
        write(files, 1, f"{generation}\n", generation)
        files.keep_failure("m/1", 0, generation)
        files.prune("m/1", 0)
    assert files.generations("m/1", 0) == [7, 6, 5, 1]
    assert read(files, first_failure=True).text == "1\n"
    files.drop_failure("m/1", 0)
    files.prune("m/1", 0)
    assert files.generations("m/1", 0) == [7, 6, 5]


def test_names_of_models_make_directories_of_their_own(files: ShardFiles) -> None:
    names = ["a/1", "a_1", "../../etc/1", "*", "x" * 300, "é/1", "a/11"]
    made = {files.directory(name, 0, 1).name for name in names}
    assert len(made) == len(names)
    assert all(name.isascii() and len(name) < 100 and "/" not in name for name in made)


def test_an_engine_that_prints_its_key_tells_it_to_no_reader_also_when_it_is_over(files: ShardFiles) -> None:
    directory = files.directory("m/1", 0, 1)
    write(files, 1, "server_args=ServerArgs(api_key='sesame')\n")
    files.write_key(directory, "sesame")
    files.forget(directory)
    assert read(files).text == "server_args=ServerArgs(api_key='…')\n"
    assert (directory / "key").stat().st_mode & 0o777 == 0o600
