"""`--watch`: a cleared screen for people, and tables that can be told apart for a file."""

import itertools
import re
import time

import click
import pytest

from llmgw_core.cli import asking

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


class Enough(Exception):
    """Of the watching."""


def watched(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_screen: bool) -> str:
    left = itertools.count()

    def pause(_: float) -> None:
        if next(left):
            raise Enough

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(click, "clear", lambda: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_screen)
    with pytest.raises(Enough):
        asking.watch(2.0, lambda: "A TABLE\na row")
    return capsys.readouterr().out


def test_a_file_gets_the_time_and_an_empty_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = rf"{TIME}\nA TABLE\na row\n\n"
    assert re.fullmatch(one * 2, watched(monkeypatch, capsys, is_screen=False))


def test_a_screen_gets_the_table_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert watched(monkeypatch, capsys, is_screen=True) == "A TABLE\na row\n" * 2
