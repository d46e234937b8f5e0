"""What `ctl gateways` says of each."""

from typing import Any

import pytest

from llmgw_core.cli.keys import gateways, render_gateways

NOW_MS = 1_796_050_667_908


def cell(version: int, current: int, **more: Any) -> str:
    gateway: dict[str, Any] = {"name": "gw", "instance": "", "state": "connected", "address": "a", "lingering": []}
    told = render_gateways(
        [{**gateway, "version": version, "current": current, "days_left": None, "since": None, **more}]
    )
    header, row = told.splitlines()
    return row[header.index("TABLE") : header.index("LINGERING")].strip()


@pytest.mark.parametrize(
    ("behind_ms", "said"),
    [
        (0, "current"),
        (1, "behind by 0.1 s"),
        (1_919, "behind by 1.9 s"),
        (95_000, "behind by 95 s"),
        (240_000, "behind by 4 min"),
        (30 * 3_600_000, "behind by 30 h"),
        (9 * 86_400_000, "behind by 9 d"),
        (-2_000, "ahead by 2.0 s"),
    ],
)
def test_how_recent_a_table_is_stands_there_in_words(behind_ms: int, said: str) -> None:
    assert cell(NOW_MS - behind_ms, NOW_MS) == said


def test_how_long_it_has_not_followed_is_more_than_how_far_the_tables_are_apart() -> None:
    assert cell(NOW_MS - 1_919, NOW_MS, behind_s=3600.0) == "behind for 60 min"
    assert cell(NOW_MS, NOW_MS, behind_s=None) == "current"


def test_a_table_that_cannot_be_compared_is_told() -> None:
    assert cell(0, NOW_MS) == "none taken"
    assert cell(NOW_MS, 0) == "from before; there is no other now"


def test_the_help_says_what_lingers() -> None:
    assert "LINGERING: requests that" in (gateways.help or "")
