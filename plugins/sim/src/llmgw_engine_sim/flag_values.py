"""What the values of flags may be. Each raises `ArgumentTypeError`, whose text argparse shows."""

from __future__ import annotations

import argparse


def whole_from_1(text: str) -> int:
    return _whole(text, 1, None)


def whole(text: str) -> int:
    return _whole(text, 0, None)


def port(text: str) -> int:
    return _whole(text, 0, 65535)


def _whole(text: str, least: int, most: int | None) -> int:
    given = int(text) if text.isdecimal() else -1
    if given < least or (most is not None and given > most):
        limits = f"from {least}" + ("" if most is None else f" to {most}")
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {limits}")
    return given


def number(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 <= given < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return given


def address(text: str) -> tuple[str, int]:
    host, colon, digits = text.rpartition(":")
    if not colon or not host:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), _whole(digits, 1, 65535)
