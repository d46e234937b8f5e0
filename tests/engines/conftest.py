"""Where the real engines are. llama.cpp: LLMGW_LLAMA_SERVER, PATH, or what `make demo` installed; vLLM: LLMGW_VLLM."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / ".demo"
INSTALLED = "venv/lib/*/site-packages/*/bin"


def find_program(name: str) -> str | None:
    variable = f"LLMGW_{name.upper().replace('-', '_')}"
    installed = next((str(path) for path in sorted(DEMO.glob(f"{INSTALLED}/{name}"))), None)
    return os.environ.get(variable) or shutil.which(name) or installed


@pytest.fixture(scope="session", name="llama_programs")
def _llama_programs() -> dict[str, str]:
    """By name, llama.cpp's two programs."""
    found = {name: find_program(name) for name in ("llama-server", "ggml-rpc-server")}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: `make demo` or `make engines` installs a prebuilt one")
    return {name: path for name, path in found.items() if path is not None}


@pytest.fixture(scope="session", name="tiny_gguf")
def _tiny_gguf() -> Path:
    """A model of half a megabyte."""
    made = Path(os.environ.get("LLMGW_TINY_GGUF") or DEMO / "tiny.gguf")
    if not made.exists():
        pytest.skip("no tiny.gguf: `make demo` or `make engines` makes one")
    return made


@pytest.fixture(scope="session", name="vllm")
def _vllm() -> str:
    """It takes minutes and two cores: only where it is asked for, though it may be installed."""
    found = os.environ.get("LLMGW_VLLM")
    if not found:
        pytest.skip("LLMGW_VLLM does not name a vLLM: `make engines-vllm` installs one for the CPU and runs these")
    return found


@pytest.fixture(scope="session", name="tiny_llama")
def _tiny_llama() -> Path:
    """A model of a megabyte."""
    made = Path(os.environ.get("LLMGW_TINY_LLAMA") or DEMO / "tiny-llama")
    if not made.exists():
        pytest.skip("no tiny-llama: `make engines-vllm` makes one")
    return made
