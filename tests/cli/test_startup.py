"""Commands import only what they need: a heavy module in the wrong place slows every start."""

import subprocess
import sys

import pytest

HEAVY = ("trio", "trio_websocket", "cryptography", "cattrs", "rich", "asyncio", "sqlite3")
RUN = "import sys; sys.argv[0] = 'llmgw'; from llmgw_core.cli import main\ntry: main()\nexcept SystemExit: pass\n"
TELL = f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"


def loaded(*arguments: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", RUN + TELL, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("loaded:")]
    return line.split()[1:]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["engines"],
        ["ca", "--help"],
        ["ca", "issue", "--help"],
        ["ctl", "--help"],
        ["ctl", "engine-check", "--help"],
        ["ctl", "engine-check", "llamacpp", "--help-output", "some text"],
        ["ctl", "engine-check", "llamacpp", "--engine-version", "b10991"],
        ["ctl", "engine-check", "sglang", "--all-versions"],
    ],
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    assert loaded(*arguments) == []


def test_running_an_engine_needs_trio_and_the_test_would_see_it() -> None:
    assert "trio" in loaded("ctl", "engine-check", "llamacpp", "--executable", "/no/such/file")


def test_llmgw_help_imports_no_plugin_and_no_value_classes() -> None:
    ask = (
        RUN + "print('loaded:', *[name for name in sys.modules if name.startswith(('attr', 'pluggy', 'llmgw_engine'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", ask, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "loaded:\n" in ended.stdout
