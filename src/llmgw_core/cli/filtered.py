"""What is said where a filter leaves nothing: that it fits nothing, and not that the fleet is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from llmgw_core.cli.printable import printable_text

MOST_NAMES = 10


def parse_labels(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` of each; the value may be empty."""
    labels: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is no label: write NAME=VALUE", context, parameter)
        if labels.setdefault(name, value) != value:
            raise click.BadParameter(f"no model has two values of the label {name}", context, parameter)
    return labels


def none_with_labels(labels: Mapping[str, str], desired: int) -> str:
    named = " and ".join(f"{name}={value}" for name, value in labels.items())
    models = "1 model is desired" if desired == 1 else f"{desired} models are desired"
    return printable_text(f"no model has the label{'s' if len(labels) > 1 else ''} {named}; {models}")


def none_of_model(model: str, names: Sequence[str]) -> str:
    """`names`: of the models that are desired."""
    if model in names:
        return printable_text(f"no replica of {model} is wanted, and none runs")
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    there_are = f"there are: {', '.join(names[:MOST_NAMES])}{more}" if names else "no model is desired"
    return printable_text(f"there is no model {model} ({there_are})")
