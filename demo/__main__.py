"""`make demo`: engine-check on a real llama-server, then a whole fleet with its replicas.

Exits 0 only if everything was seen.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from demo.engine_check import check_three_times
from demo.llama_server import NotInstalled, install_llama_server, make_tiny_gguf

LLMGW = Path(sys.executable).with_name("llmgw")


def main() -> int:
    checked, real = True, []
    try:
        server = install_llama_server()
        checked = check_three_times(server)
        real = ["--llama-server", server, "--gguf", make_tiny_gguf()]
    except NotInstalled as error:
        print(f"without a real llama.cpp: {error}", flush=True)
    fleet = subprocess.run([LLMGW, "demo", "--once", *real], check=False)
    return 0 if checked and fleet.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
