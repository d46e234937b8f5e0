"""Where in a text its values stand."""

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.toml_lines import Path, find_lines, line_of

TEXT = '''# a comment with [brackets] = "and quotes
top = 1.5
when = 1979-05-27 07:32:00 # [not.a.header]

[a.b."c.d" . 'e']
plain = "x # y"
  "quoted\\u0020key"  = 'a "b" c'
dotted.key.here = true
text = """
[no.header]
no = "key" \\""" still """""
raw = \'\'\'
x = '' [y]\'\'\'
list = [ 1, [2,
  3], # comment ]
  { in = 4, line.dotted = [5] },
]
[[tables]]
one = 1
[tables.sub]
two = 2
[[tables]]
[tables.sub]
three = 3
[a]
late = 1
'''

LINES: dict[Path, int] = {
    ("top",): 2,
    ("when",): 3,
    ("a",): 25,
    ("a", "b"): 5,
    ("a", "b", "c.d", "e"): 5,
    ("a", "b", "c.d", "e", "plain"): 6,
    ("a", "b", "c.d", "e", "quoted key"): 7,
    ("a", "b", "c.d", "e", "dotted"): 8,
    ("a", "b", "c.d", "e", "dotted", "key", "here"): 8,
    ("a", "b", "c.d", "e", "text"): 9,
    ("a", "b", "c.d", "e", "raw"): 12,
    ("a", "b", "c.d", "e", "list"): 14,
    ("a", "b", "c.d", "e", "list", 0): 14,
    ("a", "b", "c.d", "e", "list", 1): 14,
    ("a", "b", "c.d", "e", "list", 1, 1): 15,
    ("a", "b", "c.d", "e", "list", 2): 16,
    ("a", "b", "c.d", "e", "list", 2, "in"): 16,
    ("a", "b", "c.d", "e", "list", 2, "line", "dotted", 0): 16,
    ("tables",): 18,
    ("tables", 0): 18,
    ("tables", 0, "one"): 19,
    ("tables", 0, "sub", "two"): 21,
    ("tables", 1): 22,
    ("tables", 1, "sub"): 23,
    ("tables", 1, "sub", "three"): 24,
    ("a", "late"): 26,
}


@pytest.mark.parametrize(("path", "line"), LINES.items())
def test_each_value_has_its_line(path: Path, line: int) -> None:
    assert find_lines(TEXT)[path] == line


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def test_exactly_the_values_of_the_text_have_lines() -> None:
    assert set(find_lines(TEXT)) == set(paths(tomllib.loads(TEXT)))


def test_windows_line_ends_count_once() -> None:
    assert find_lines(TEXT.replace("\n", "\r\n")) == find_lines(TEXT)


def test_what_is_not_there_is_told_with_what_would_hold_it() -> None:
    lines = find_lines("\n[a]\nb = {}\n")
    assert line_of(("a", "b", "c"), lines) == 3
    assert line_of(("a", "x"), lines) == 2
    assert line_of(("x",), lines) is None


@given(st.text(alphabet="[]{}=.,'\"\\\n #ab1", max_size=60))
def test_whatever_tomllib_reads_is_walked_to_the_same_values(text: str) -> None:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert set(find_lines(text)) == set(paths(values))
