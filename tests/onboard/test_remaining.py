"""What a new node says that it has, and when it has said all of it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from llmgw_core.model.node import NOT_LOOKED_YET
from llmgw_core.onboard.remaining import Fleet, has_answered
from llmgw_core.plan.candidate import NOT_ANSWERED, NOT_SAID
from llmgw_core.plan.where_weights import NO_ANSWER

SIM = {"engine": "sim", "executable": "/opt/sim", "outcome": "accepted", "reason": ""}
UNSEEN = {"engine": "vllm", "executable": None, "outcome": "unchecked", "reason": NOT_LOOKED_YET}


def a_node(state: str = "online", gpus: str = "", engines: tuple[dict[str, Any], ...] = (SIM,)) -> dict[str, Any]:
    return {"state": state, "facts": {"gpus": {"reason": gpus}, "engines": engines}}


def explained(refusal: str) -> dict[str, Any]:
    return {"model": "m", "profiles": [{"profile": "p", "nodes": [{"node": "n1", "refusal": refusal}]}]}


def weighed(weights: str, reason: str) -> dict[str, Any]:
    return {"model": "m", "nodes": [{"node": "n1", "weights": weights, "reason": reason}]}


SAID = Fleet(a_node(), (explained("has no vllm"),), (weighed("not whole", "/m is not there"),))


def test_a_node_that_has_said_all_has_answered() -> None:
    assert has_answered("n1", SAID)
    assert has_answered("n1", Fleet(a_node()))


@pytest.mark.parametrize(
    "missing",
    [
        {"node": {}},
        {"node": a_node("suspect")},
        {"node": a_node(gpus=NOT_LOOKED_YET)},
        {"node": a_node(engines=())},
        {"node": a_node(engines=(SIM, UNSEEN))},
        {"explained": (explained(NOT_ANSWERED),)},
        {"explained": (explained(NOT_SAID),)},
        {"weights": (weighed("not known", NO_ANSWER),)},
    ],
)
def test_what_a_node_is_still_to_say_is_waited_for(missing: dict[str, Any]) -> None:
    assert not has_answered("n1", attrs.evolve(SAID, **missing))
