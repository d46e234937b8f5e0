"""What a revocation asks the control plane for."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llmgw_core.cli import cert
from llmgw_core.cli.context import Context


@pytest.mark.parametrize("what", ["revoke", "unrevoke"])
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["gpu1"], {"name": "gpu1", "serial": "", "role": ""}),
        (["gpu1", "--role", "node"], {"name": "gpu1", "serial": "", "role": "node"}),
        (["--serial", "0a"], {"name": "", "serial": "0a", "role": ""}),
    ],
)
def test_what_is_asked(monkeypatch: pytest.MonkeyPatch, what: str, words: list[str], asked: dict[str, str]) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []

    def ask(_: Context, what: str, **arguments: Any) -> list[str]:
        heard.append((what, arguments))
        return ["0a\x1b[2J"]

    monkeypatch.setattr(cert, "ask", ask)
    ended = CliRunner().invoke(cert.cert, [what, *words], obj=Context(Path("/none"), None, None))
    assert ended.exit_code == 0
    assert "0a\\u001b[2J" in ended.output
    ((name, arguments),) = heard
    arguments.pop("reason", None)
    assert (name, arguments) == (what, asked)


def test_a_role_that_nobody_has() -> None:
    ended = CliRunner().invoke(cert.cert, ["revoke", "gpu1", "--role", "king"], obj=None)
    assert ended.exit_code == 2
