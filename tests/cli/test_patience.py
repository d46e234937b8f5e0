"""How long one who follows something bears that there is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.cli import asking
from llmgw_core.cli.asking import MOST_REFUSALS, NotAnswered, NotHeard, Patience
from llmgw_core.cli.context import Context
from llmgw_core.net.call import NotReached

AWAY = NotReached("away")
REFUSED = ExceptionGroup("", [NotHeard("operator bob refused: its certificate is revoked")])


def following(monkeypatch: pytest.MonkeyPatch, *said: object) -> Iterator[Any]:
    """What it gets, look by look."""
    answers = iter(said)

    def answer(context: Context, what: str, **arguments: Any) -> Any:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(asking, "ask", answer)
    patience = Patience()
    return (patience.ask(Context(Path("none"), None, None), "drains") for _ in said)


def test_a_control_plane_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(following(monkeypatch, *repeat(AWAY, 100), "there")) == [*repeat(None, 100), "there"]


def test_one_that_stops_may_refuse_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [REFUSED] * (MOST_REFUSALS - 1)
    assert [each for each in following(monkeypatch, *few, AWAY, *few, "there", *few) if each] == ["there"]


def test_one_that_goes_on_refusing_ends_it_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotHeard, match="revoked"):
        list(following(monkeypatch, *repeat(REFUSED, MOST_REFUSALS)))


def test_an_answer_that_says_no_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAnswered, match="no node n2"):
        list(following(monkeypatch, NotAnswered("no node n2")))
