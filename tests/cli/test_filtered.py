"""A filter that fits nothing does not say that the fleet is empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from llmgw_core.cli import fleet, replicas
from llmgw_core.cli.context import Context


def a_model(name: str, **labels: str) -> dict[str, Any]:
    columns = {"ready": 1, "wanted": 1, "scaled": False, "profiles": ["p"], "source": "/m", "trouble": ""}
    return {"name": name, "labels": labels, **columns}


def run(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], command: click.Command, *words: str) -> str:
    for module in (fleet, replicas):
        monkeypatch.setattr(module, "ask", lambda context, what, **arguments: answers[what])
    ended = CliRunner().invoke(command, words, obj=Context(Path("/none"), None, None))
    assert ended.exit_code == 0, ended.output
    return ended.output


FOUR = [a_model("a", team="red"), *(a_model(name) for name in "bcd")]


@pytest.mark.parametrize(
    ("desired", "words", "expected"),
    [
        (FOUR, ["--label", "nope=1"], "no model has the label nope=1; 4 models are desired\n"),
        (FOUR[:1], ["--label", "team=blue"], "no model has the label team=blue; 1 model is desired\n"),
        (
            FOUR,
            ["--label", "team=red", "--label", "x="],
            "no model has the labels team=red and x=; 4 models are desired\n",
        ),
        ([], ["--label", "nope=1"], "no model is desired; `llmgw ctl apply CATALOG` brings some\n"),
    ],
)
def test_a_label_that_no_model_has(
    monkeypatch: pytest.MonkeyPatch, desired: list[Any], words: list[str], expected: str
) -> None:
    assert run(monkeypatch, {"models": desired}, replicas.models, *words) == expected


def test_a_label_that_a_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run(monkeypatch, {"models": FOUR}, replicas.models, "--label", "team=red", "--json")
    assert [each["name"] for each in json.loads(printed)] == ["a"]


@pytest.mark.parametrize("words", [["a"], ["=a"], [""], ["a=1", "--label", "a=2"]])
def test_what_is_no_label_is_a_usage_error(words: list[str]) -> None:
    ended = CliRunner().invoke(replicas.models, ["--label", *words], obj=None)
    assert ended.exit_code == 2
    assert "NAME=VALUE" in ended.output or "two values" in ended.output


@pytest.mark.parametrize(
    ("desired", "model", "expected"),
    [
        (FOUR, "nosuch", "there is no model nosuch (there are: a, b, c, d)\n"),
        (FOUR, "a", "no replica of a is wanted, and none runs\n"),
        ([], "nosuch", "there is no model nosuch (no model is desired)\n"),
        (
            [a_model(f"m{n}") for n in range(12)],
            "m",
            "there is no model m (there are: m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, and 2 more)\n",
        ),
    ],
)
def test_replicas_of_a_model_that_has_none(
    monkeypatch: pytest.MonkeyPatch, desired: list[Any], model: str, expected: str
) -> None:
    answers = {"models": desired, "replicas": []}
    assert run(monkeypatch, answers, replicas.replicas, "--model", model) == expected
    assert run(monkeypatch, answers, replicas.replicas, "--model", model, "--json") == "[]\n"


def test_events_of_a_node_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {"events": [], "node": {}}
    assert run(monkeypatch, answers, fleet.events, "--node", "quiet") == "no events of a node quiet\n"
    assert run(monkeypatch, answers, fleet.events, "--node", "quiet", "--json") == ""
    assert run(monkeypatch, {"events": []}, fleet.events) == ""
