"""Both scripts say the same version as `llmgw`."""

import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


@pytest.mark.parametrize("script", ["llmgw-onboard-node", "llmgw-provision-node"])
def test_a_script_says_the_version_of_llmgw(script: str) -> None:
    said = [
        subprocess.run([BIN / name, "--version"], check=True, capture_output=True).stdout for name in (script, "llmgw")
    ]
    assert said[0] == said[1]
