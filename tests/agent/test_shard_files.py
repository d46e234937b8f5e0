"""What the agent keeps on its disk stops nobody, however it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_core.agent.shard_files import ShardFiles


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ('{"m/1": 3, "k/1": 1e400, "n/1": null, "o/1": 9223372036854775807, "p/1": true}', {"m/1": 3}),
        ('{"m/1": 3', {}),
        ("[1, 2]", {}),
        ("\0\0\0", {}),
        ("", {}),
    ],
)
def test_of_damaged_generations_the_good_ones_count(tmp_path: Path, text: str, known: dict[str, int]) -> None:
    """An agent that cannot begin loses its whole node; one that believes 2^63 takes no order any more."""
    (tmp_path / "generations.json").write_text(text, encoding="utf-8")
    files = ShardFiles(tmp_path)
    files.read_highest()
    assert files.highest == known
