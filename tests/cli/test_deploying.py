"""What `apply --wait` waits for."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw_core.cli.deploying import find_unsettled, is_stuck


def model(name: str, ready: int, wanted: int) -> dict[str, Any]:
    return {"name": name, "ready": ready, "wanted": wanted}


def replica(
    id: str, state: str = "ready", reason: str = "", *, outdated: bool = False, routed: bool = True
) -> dict[str, Any]:
    model, routed = id.split("/")[0], routed and state == "ready"
    return {"id": id, "model": model, "state": state, "reason": reason, "outdated": outdated, "routed": routed}


@pytest.mark.parametrize(
    ("models", "replicas", "expected"),
    [
        ([], [], []),
        ([model("m", 1, 1)], [replica("m/1")], []),
        ([model("m", 0, 0)], [], []),
        # The planner has not looked at the catalog yet.
        ([model("m", 0, 2)], [], ["m: 0 replicas are ready, and 2 wanted"]),
        ([model("m", 2, 1)], [replica("m/1"), replica("m/2")], ["m: 2 replicas are ready, and 1 wanted"]),
        ([], [replica("m/1")], ["m: 1 replicas are ready, and 0 wanted"]),
        ([model("m", 1, 1)], [replica("m/1", outdated=True)], ["m/1 is ready: how it is to run was changed"]),
        ([model("m", 1, 1)], [replica("m/1", routed=False)], ["m/1 is ready: not every gateway has been told"]),
        # It has.
        ([model("m", 0, 1)], [replica("m/1", "pending", "no room")], ["m/1 is pending: no room"]),
        ([model("m", 0, 1)], [replica("m/1", "stopping", "as told")], ["m/1 is stopping: as told"]),
    ],
)
def test_it_ends_when_all_is_as_desired(
    models: list[dict[str, Any]], replicas: list[dict[str, Any]], expected: list[str]
) -> None:
    assert find_unsettled(models, replicas) == expected


@pytest.mark.parametrize(
    ("replicas", "stuck"),
    [
        ([], False),
        ([("ready", False, False)], False),
        ([("ready", True, True)], True),
        ([("ready", True, True), ("starting", False, False)], False),
        ([("ready", True, True), ("ready", False, False)], True),
    ],
)
def test_it_does_not_wait_for_a_change_that_cannot_go_on(replicas: list[tuple[str, bool, bool]], stuck: bool) -> None:
    views = [
        {"state": state, "outdated": outdated, "blocked": blocked, "routed": state == "ready"}
        for state, outdated, blocked in replicas
    ]
    assert is_stuck(views) is stuck
