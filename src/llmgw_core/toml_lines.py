"""On which line of a TOML text each of its values stands.

In: a text that tomllib has read.  Out: lines by path, from 1. Pure.
No library keeps positions (tomllib drops them, tomlkit's items have none), so this walks the text once more. It is
imported only when there is a mistake to show, and relies on the text's being valid.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping

from attrs import frozen

Path = tuple[str | int, ...]

# A text that ends with quotes has up to two more of them before the closing three.
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r]+ | \#[^\n]*)
    | (?P<newline>\n)
    | (?P<string>\"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*')
    | (?P<mark>[\[\]{}=,.])
    | (?P<bare>[^\s\[\]{}=,."'\#]+)
    """,
    re.VERBOSE | re.DOTALL,
)


@frozen
class _Token:
    kind: str
    text: str
    line: int


def find_lines(text: str) -> Mapping[Path, int]:
    """Of a table the line of its header, of a value that of its key, of a list's element its own."""
    walker = _Walker(list(_tokens(text)))
    walker.walk()
    return walker.lines


def line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    """The line of what is at `path`, or of the innermost that holds it and is there."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            yield _Token(match.lastgroup or "", match[0], line)
        line += match[0].count("\n")
    yield _Token("end", "", line)


class _Walker:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._counts: Counter[Path] = Counter()
        """Of each list of tables (`[[NAME]]`), how many there were so far."""
        self.lines: dict[Path, int] = {}

    def walk(self) -> None:
        table: Path = ()
        while self._next.kind != "end":
            if self._next.kind == "newline":
                self._take()
            elif self._next.text == "[":
                table = self._header()
            else:
                self._entry(table)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _takes(self, mark: str) -> bool:
        """Whether this is what comes next, which is then behind us."""
        found = self._next.kind == "mark" and self._next.text == mark
        self._at += found
        return found

    def _header(self) -> Path:
        line = self._take().line
        doubled = self._takes("[")
        path = self._lead((), line)
        self._at += 1 + doubled  # `]`
        if not doubled:
            self.lines[path] = line  # until now it may have been known by a table within it
            return path
        self._counts[path] += 1
        path = (*path, self._counts[path] - 1)
        self.lines[path] = line
        return path

    def _entry(self, table: Path) -> None:
        path = self._lead(table, self._next.line)
        self._takes("=")
        self._value(path)

    def _lead(self, path: Path, line: int) -> Path:
        """Where a dotted key leads to from `path`; each table on the way is known from now on."""
        while True:
            path = (*path, _key(self._take()))
            self.lines.setdefault(path, line)
            if not self._takes("."):
                return path
            if path in self._counts:
                path = (*path, self._counts[path] - 1)

    def _value(self, path: Path) -> None:
        if self._takes("["):
            self._elements(path)
        elif self._takes("{"):
            while not self._ends("}"):
                self._entry(path)
        else:  # a number with a point is of several tokens, and so is a date
            while self._next.kind not in ("newline", "end") and self._next.text not in (",", "]", "}"):
                self._take()

    def _elements(self, path: Path) -> None:
        index = 0
        while not self._ends("]"):
            self.lines[(*path, index)] = self._next.line
            self._value((*path, index))
            index += 1

    def _ends(self, mark: str) -> bool:
        while self._next.kind == "newline" or self._takes(","):
            self._at += self._next.kind == "newline"
        return self._takes(mark)


def _key(token: _Token) -> str:
    if token.kind != "string":
        return token.text
    (key,) = tomllib.loads(f"{token.text} = 0")
    return key
