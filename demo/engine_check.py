"""engine-check on a real llama-server, three times, with three different outcomes.

It is checked as it is, by its help cut short, and with a profile that has a flag that llama.cpp removed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".demo"
LLMGW = Path(sys.executable).with_name("llmgw")

CATALOG = """\
[models.tiny]
source = "/models/tiny.gguf"
profiles = ["tiny-draft"]

[profiles.tiny-draft]
engine = "llamacpp"
context_length = 4096
extra_args = ["--draft-max", "4"]
"""


def check_three_times(server: str) -> bool:
    """Whether each came out as it should."""
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
    return all(seen)


def show(what: str, arguments: list[str], wanted: int) -> bool:
    """Run llmgw and show what it says; whether it exited as wanted."""
    said = " ".join(word.replace(str(ROOT), ".") for word in arguments)
    print(f"\n== {what}\n$ llmgw {said}", flush=True)
    code = subprocess.run([LLMGW, *arguments], cwd=ROOT, check=False).returncode
    print(f"exit code {code}" + ("" if code == wanted else f", expected {wanted}"), flush=True)
    return code == wanted
