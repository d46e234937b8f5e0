"""From and to plain data.

The operator's files are read strictly: every mistake at once, each with its path; a key that nobody reads is a mistake.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_origin

import attrs
from cattrs import Converter, transform_error
from cattrs.cols import mapping_structure_factory
from cattrs.errors import ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from llmgw_core.errors import LlmgwError
from llmgw_core.model.catalog import BadValue, Catalog
from llmgw_core.model.origin import LLMGW

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


class BadFile(LlmgwError):
    """An operator's file with mistakes; `mistakes` has one line each, with the path inside the file."""

    def __init__(self, name: str, mistakes: tuple[str, ...]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(f"{name}: {mistake}" for mistake in mistakes))


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


def _file_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for primitive in _PRIMITIVES:
        converter.register_structure_hook(primitive, _exactly)
    converter.register_structure_hook_func(
        lambda wanted: wanted == tuple[str, ...], lambda value, _: _texts(value, converter)
    )
    converter.register_structure_hook_factory(
        attrs.has, lambda wanted: _table_hook(make_dict_structure_fn(wanted, converter))
    )
    converter.register_structure_hook_factory(
        _is_mapping,
        lambda wanted: _table_hook(mapping_structure_factory(wanted, converter)),
    )
    return converter


def _is_mapping(wanted: Any) -> bool:
    origin: Any = get_origin(wanted)
    return origin is Mapping


def _texts(value: object, converter: Converter) -> tuple[str, ...]:
    return tuple(converter.structure(_exactly(value, list), list[str]))


def _table_hook(structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, wanted: structure(_exactly(value, dict), wanted)


def parse_file(text: str, name: str, kind: type[T]) -> T:
    """The value in an operator's TOML `text`; raises `BadFile`, each mistake led by `name`, the file's."""
    return parse_values(parse_toml(text, name), name, kind)


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The plain values in `text`; raises `BadFile`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(name, (f"not TOML: {error}",)) from error
    except RecursionError:
        raise BadFile(name, ("its tables or lists are nested too deeply",)) from None


def read_toml_text(path: Path) -> str:
    """An operator's file; raises `BadFile` where it is no text, and OSError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(str(path), (f"it is not UTF-8 (byte {error.start})",)) from error
    except ValueError as error:  # a path with a NUL in it
        raise BadFile(repr(str(path)), (f"cannot be read: {error}",)) from error


def parse_values(values: dict[str, Any], name: str, kind: type[T]) -> T:
    """As `parse_file`, from plain values."""
    converter = _file_converter()
    try:
        return converter.structure(values, kind)
    except Exception as error:
        raise BadFile(name, tuple(_mistakes(error))) from error


def parse_catalog(text: str, name: str) -> Catalog:
    """The catalog in `text`; raises `BadFile`."""
    catalog = parse_file(text, name, Catalog)
    mistakes = (*_bad_names(catalog), *_unknown_profiles(catalog))
    if mistakes:
        raise BadFile(name, mistakes)
    return catalog


def _bad_names(catalog: Catalog) -> list[str]:
    """Names stand in messages, tables and reports, where `llmgw` means llmgw itself."""
    names = [*(("models", name) for name in catalog.models), *(("profiles", name) for name in catalog.profiles)]
    bad = [
        f"{table}: {name!r} cannot be a name: it is empty or not printable"
        for table, name in names
        if not name.isprintable() or not name
    ]
    return bad + (
        [f"profiles.{LLMGW}: this name means llmgw itself; choose another"] if LLMGW in catalog.profiles else []
    )


def _mistakes(error: BaseException) -> list[str]:
    messages = transform_error(error, path="", format_exception=_mistake)
    return [_with_path(message) for message in messages]


def _mistake(error: BaseException, wanted: type | None) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        return f"unknown key {', '.join(sorted(error.extra_fields))}"
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, _WrongType | BadValue):
        return str(error)
    return f"cannot be read: {error}"


def _with_path(message: str) -> str:
    """cattrs puts the path behind (`… @ .profiles['x'].nodes`); people look for it in front."""
    said, _, path = message.rpartition(" @ ")
    dotted = path.replace("['", ".").replace("']", "").strip(".")
    if said.startswith("."):  # a value's own mistake, which names its field
        return f"{dotted}{said}"
    return f"{dotted}: {said}" if dotted else said


def _unknown_profiles(catalog: Catalog) -> list[str]:
    known = ", ".join(sorted(catalog.profiles)) or "none"
    return [
        f"models.{name}.profiles: no profile {profile!r} (there are: {known})"
        for name, model in catalog.models.items()
        for profile in model.profiles
        if profile not in catalog.profiles
    ]
