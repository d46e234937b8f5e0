"""From and to plain data.

The operator's files are read strictly: every mistake at once, each with its line and its path; a key that nobody reads
is a mistake.
"""

from __future__ import annotations

import json
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar, get_origin

import attrs
from cattrs import Converter, override
from cattrs.cols import mapping_structure_factory
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn

from llmgw_core.errors import LlmgwError
from llmgw_core.model.catalog import BadValue, Catalog, Model, Profile
from llmgw_core.model.catalog_check import Mistake, Path, Unread, find_mistakes

T = TypeVar("T")

_WORDS: dict[type, str] = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
_PRIMITIVES = (str, int, float, bool)
_STAND_INS: dict[str, Any] = {"source": "stand-in", "profiles": ["stand-in"], "engine": "stand-in"}
"""For what a model or a profile must have, and what cannot be read."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOML_ERROR = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class BadFile(LlmgwError):
    """An operator's file with mistakes; `mistakes` has one line each, with the path inside the file."""

    def __init__(self, name: str, mistakes: tuple[Mistake, ...], text: str | None = None) -> None:
        """`text`: the file's, where its lines are to be told."""
        told = [(_shown_mistake(mistake), line) for mistake, line in _in_order(mistakes, text)]
        self.mistakes = tuple(said for said, _ in told)
        super().__init__("\n".join(f"{name}:{line}: {said}" if line else f"{name}: {said}" for said, line in told))


def _in_order(mistakes: tuple[Mistake, ...], text: str | None) -> list[tuple[Mistake, int | None]]:
    """Each with its line, as they stand in the file."""
    if text is None:
        return [(mistake, None) for mistake in mistakes]
    from llmgw_core.toml_lines import find_lines, line_of

    try:
        lines = find_lines(text)
    except RecursionError:  # it needs more depth than tomllib
        lines = {}
    found = [(mistake, line_of(mistake.place, lines)) for mistake in mistakes]
    return sorted(found, key=lambda each: each[1] or 0)


def _shown_mistake(mistake: Mistake) -> str:
    dotted = "".join(map(_shown_step, mistake.path)).removeprefix(".")
    return f"{dotted}: {mistake.said}" if dotted else mistake.said


def _shown_step(step: str | int) -> str:
    """As TOML writes it."""
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _BARE_KEY.fullmatch(step) else f".{json.dumps(step, ensure_ascii=not step.isprintable())}"


class _WrongType(Exception):
    def __init__(self, value: object, wanted: type) -> None:
        super().__init__(f"expected {_WORDS[wanted]}, got {_shown(value)}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _exactly(value: object, wanted: type) -> object:
    fits = isinstance(value, (int, float) if wanted is float else wanted)
    if not fits or (isinstance(value, bool) and wanted is not bool):
        raise _WrongType(value, wanted)
    return value


def _is_choice(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, Enum)


def _chosen(value: object, wanted: type[Enum]) -> Enum:
    """By its value."""
    for each in wanted:
        if each.value == _exactly(value, str):
            return each
    known = ", ".join(f'"{each.value}"' for each in wanted)
    raise BadValue((), f"expected one of {known}, got {_shown(value)}")


def _file_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for primitive in _PRIMITIVES:
        converter.register_structure_hook(primitive, _exactly)
    converter.register_structure_hook_func(_is_choice, _chosen)
    converter.register_structure_hook_func(
        lambda wanted: wanted == tuple[str, ...], lambda value, _: _texts(value, converter)
    )
    converter.register_structure_hook_factory(attrs.has, lambda wanted: _table_hook(_of_class(wanted, converter)))
    converter.register_structure_hook_factory(
        _is_mapping,
        lambda wanted: _table_hook(mapping_structure_factory(wanted, converter)),
    )
    return converter


def _of_class(wanted: type, converter: Converter) -> Callable[[Any, Any], Any]:
    """Each field is validated by itself: an attrs class would stop at the first that is bad."""
    checked = {
        field.name: override(struct_hook=_checked(field, converter))
        for field in attrs.fields(wanted)
        if field.validator
    }
    return make_dict_structure_fn(wanted, converter, **checked)  # type: ignore[arg-type]


def _checked(field: attrs.Attribute[Any], converter: Converter) -> Callable[[Any, Any], Any]:
    def structure(value: Any, wanted: Any) -> Any:
        structured = converter.structure(value, wanted)
        try:
            if field.validator is not None:
                field.validator(None, field, structured)
        except BadValue as error:  # its path begins with the field, which leads here already
            raise BadValue(error.path[1:], error.said) from None
        return structured

    return structure


def _is_mapping(wanted: Any) -> bool:
    origin: Any = get_origin(wanted)
    return origin is Mapping


def _texts(value: object, converter: Converter) -> tuple[str, ...]:
    return tuple(converter.structure(_exactly(value, list), list[str]))


def _table_hook(structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, wanted: structure(_exactly(value, dict), wanted)


def parse_file(text: str, name: str, kind: type[T]) -> T:
    """The value in an operator's TOML `text`; raises `BadFile`, each mistake led by `name`, the file's."""
    values = parse_toml(text, name)
    value, mistakes = _structure(values, kind)
    if value is None:
        raise BadFile(name, mistakes, text)
    return value


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The plain values in `text`; raises `BadFile`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where, said = _toml_error(str(error), text)
        raise BadFile(f"{name}:{where}" if where else name, (Mistake((), f"not TOML: {said}"),)) from error
    except RecursionError:
        raise BadFile(name, (Mistake((), "its tables or lists are nested too deeply"),)) from None


def _toml_error(said: str, text: str) -> tuple[int | None, str]:
    """The line, and what is wrong there: tomllib tells both in one text."""
    match = _TOML_ERROR.fullmatch(said)
    if match is None:
        return None, said
    if match[2] is None:
        return text.rstrip("\n").count("\n") + 1, f"{match[1]} (at the end)"
    return int(match[2]), f"{match[1]} (column {match[3]})"


def read_toml_text(path: pathlib.Path) -> str:
    """An operator's file; raises `BadFile` where it is no text, and OSError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(str(path), (Mistake((), f"it is not UTF-8 (byte {error.start})"),)) from error
    except ValueError as error:  # a path with a NUL in it
        raise BadFile(repr(str(path)), (Mistake((), f"cannot be read: {error}"),)) from error


def parse_values(values: dict[str, Any], name: str, kind: type[T]) -> T:
    """As `parse_file`, from plain values; no lines are told."""
    value, mistakes = _structure(values, kind)
    if value is None:
        raise BadFile(name, mistakes)
    return value


def parse_catalog(text: str, name: str, *, possible: bool = True) -> Catalog:
    """The catalog in `text`; raises `BadFile`.

    `possible`: whether a profile that no engine could run is a mistake; engine-check says it of that profile alone.
    """
    values = parse_toml(text, name)
    catalog, mistakes = _structure(values, Catalog)
    readable, unread = _readable_part(values) if catalog is None else (catalog, {})
    profiles = values.get("profiles")
    named = profiles if isinstance(profiles, dict) else {}
    mistakes += tuple(find_mistakes(readable, named, unread, possible=possible))
    if catalog is None or mistakes:
        raise BadFile(name, mistakes, text)
    return catalog


def _readable_part(values: dict[str, Any]) -> tuple[Catalog, Unread]:
    """What can be read of the models and profiles, so that what is wrong between values is told with the rest."""
    models, unread_of_models = _readable(values, "models", Model)
    profiles, unread_of_profiles = _readable(values, "profiles", Profile)
    return Catalog(models=models, profiles=profiles), {**unread_of_models, **unread_of_profiles}


def _readable(values: dict[str, Any], table: str, kind: type[T]) -> tuple[dict[str, T], Unread]:
    given = values.get(table)
    read: dict[str, T] = {}
    unread: dict[Path, set[str]] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        readable, keys = _readable_table(value, kind)
        if readable is not None:
            read[name] = readable
            unread[(table, name)] = keys
    return read, unread


def _readable_table(value: object, kind: type[T]) -> tuple[T | None, set[str]]:
    """The table with defaults, or stand-ins, in the place of what cannot be read; and the keys of that."""
    whole, mistakes = _structure(value, kind)
    if whole is not None or not isinstance(value, dict):
        return whole, set()
    keys = {str(mistake.place[0]) for mistake in mistakes if mistake.place}
    rest = {key: each for key, each in value.items() if key not in keys}
    required = {field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING}  # type: ignore[arg-type]
    return _structure({**rest, **{key: _STAND_INS[key] for key in keys & required}}, kind)[0], keys


def _structure(values: object, kind: type[T]) -> tuple[T | None, tuple[Mistake, ...]]:
    """The value, or all that is wrong with it."""
    try:
        return _file_converter().structure(values, kind), ()
    except Exception as error:
        return None, tuple(_mistakes(error, ()))


def _mistakes(error: BaseException, path: tuple[str | int, ...]) -> Iterator[Mistake]:
    if isinstance(error, ClassValidationError):
        fields, others = error.group_exceptions()
        for each, field in fields:
            yield from _mistakes(each, (*path, field.name))
        for other in others:
            yield from _mistakes(other, path)
    elif isinstance(error, IterableValidationError):
        for each, element in error.group_exceptions()[0]:
            yield from _mistakes(each, (*path, element.index))
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield Mistake(path, f"unknown key {key}", key)
    elif isinstance(error, BadValue):
        yield Mistake((*path, *error.path), error.said)
    elif isinstance(error, KeyError):
        yield Mistake(path, "is missing")
    else:
        yield Mistake(path, str(error) if isinstance(error, _WrongType) else f"cannot be read: {error}")
