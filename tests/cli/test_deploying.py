"""What `apply --wait` waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llmgw_core.cli import deploying
from llmgw_core.cli.context import Context
from llmgw_core.cli.deploying import find_unsettled, is_stuck


def model(name: str, ready: int, wanted: int) -> dict[str, Any]:
    return {"name": name, "ready": ready, "wanted": wanted}


def replica(
    id: str, state: str = "ready", reason: str = "", *, outdated: bool = False, routed: bool = True
) -> dict[str, Any]:
    model, routed = id.split("/")[0], routed and state == "ready"
    now = {"state": state, "reason": reason, "outdated": outdated, "routed": routed, "blocked": False}
    return {"id": id, "model": model, **now}


@pytest.mark.parametrize(
    ("models", "replicas", "expected"),
    [
        ([], [], []),
        ([model("m", 1, 1)], [replica("m/1")], []),
        ([model("m", 0, 0)], [], []),
        # The planner has not looked at the catalog yet.
        ([model("m", 0, 2)], [], ["m: 0 replicas are ready, and 2 wanted"]),
        ([model("m", 2, 1)], [replica("m/1"), replica("m/2")], ["m: 2 replicas are ready, and 1 wanted"]),
        ([model("m", 1, 2)], [replica("m/1")], ["m: 1 replica is ready, and 2 wanted"]),
        ([], [replica("m/1")], ["m/1 is ready: it is to go, its model was removed"]),
        ([], [replica("m/1", outdated=True)], ["m/1 is ready: it is to go, its model was removed"]),
        (
            [],
            [replica("m/1", "failed", "no such file; again in 9 s")],
            ["m/1 is failed: it is to go, its model was removed"],
        ),
        ([], [replica("m/1", "pending")], ["m/1 is pending: it is to go, its model was removed"]),
        ([], [replica("m/1", "stopping", "as told")], ["m/1 is stopping: as told"]),
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
    assert list(find_unsettled(models, replicas).values()) == expected


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
        {"model": "m", "state": state, "outdated": outdated, "blocked": blocked, "routed": state == "ready"}
        for state, outdated, blocked in replicas
    ]
    assert is_stuck([model("m", 0, 1)], views) is stuck
    assert not is_stuck([], views)  # its model was removed: it goes by itself


def waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *answers: tuple[list[Any], list[Any]]) -> Result:
    """What `apply --wait` says while the fleet is as in `answers`, one after the other."""
    left = list(answers)
    monkeypatch.setattr(deploying, "ask", lambda *_, **__: [])
    monkeypatch.setattr(deploying, "ask_all", lambda *_: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(deploying, "FOLLOW_S", 0.0)
    (tmp_path / "empty.toml").touch()
    words = [str(tmp_path / "empty.toml"), "--wait", "--within", "0.001" if len(answers) == 1 else "60"]
    return CliRunner().invoke(deploying.apply, words, obj=Context(Path("/none"), None, None))


def test_it_ends_with_what_is_so_then(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ready = [replica("m/1")]
    said = waited(monkeypatch, tmp_path, ([], [replica("m/1", outdated=True)]), ([], []))
    assert said.output.splitlines()[-2:] == [
        "  m/1 is ready: it is to go, its model was removed",
        "nothing is wanted, and nothing runs",
    ]
    said = waited(monkeypatch, tmp_path, ([model("m", 0, 1)], []), ([model("m", 1, 1)], ready))
    assert said.output.splitlines()[-1] == "all replicas are ready"


def test_it_names_what_it_has_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = waited(
        monkeypatch, tmp_path, ([model("m", 1, 2), model("n", 0, 1)], [replica("m/1"), replica("m/2", "starting")])
    )
    assert str(said.exception) == "not all was so within 0.001 s; still waited for: m/2, n"
    many = [model(f"m{n}", 0, 1) for n in range(12)]
    assert str(waited(monkeypatch, tmp_path, (many, [])).exception).endswith("m8, m9, and 2 more")
