"""Write the plugins' recorded flag tables from real help texts: `make surfaces HELP=DIRECTORY`.

Reads every `<program>-<version>.help.txt` in the directory with the plugin's own reader and writes
`plugins/<engine>/src/llmgw_engine_<engine>/surfaces/<program>-<version>.json`. A text that its reader does not find
whole is refused, since a table with holes would call flags missing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from llmgw_core.engine import NotCompleteHelp
from llmgw_core.engines import Engines
from llmgw_core.plugins import load_engines
from llmgw_core.surface import render_surface

# Which engine and program a text belongs to, by the beginning of its name.
PREFIXES = {
    "llamacpp-rpc-": ("llamacpp", "ggml-rpc-server"),
    "llamacpp-": ("llamacpp", "llama-server"),
    "sglang-": ("sglang", "sglang"),
    "vllm-": ("vllm", "vllm"),
}


def main(directory: Path) -> int:
    engines = load_engines()
    refused = [why for path in sorted(directory.glob("*.help.txt")) if (why := _record(engines, path))]
    for why in refused:
        print(why, file=sys.stderr)
    return 1 if refused else 0


def _record(engines: Engines, path: Path) -> str:
    """Write one surface; the reason when it cannot be written."""
    prefix = next((prefix for prefix in PREFIXES if path.name.startswith(prefix)), None)
    if prefix is None:
        return f"{path}: no known program's name begins it ({', '.join(PREFIXES)})"
    engine, program = PREFIXES[prefix]
    try:
        table = engines.read_help(engine, program, path.read_text(encoding="utf-8"))
    except NotCompleteHelp as error:
        return f"{path}: {error}"
    if table.cuts:
        return f"{path}: looks cut short: {', '.join(table.cuts)}"
    version = path.name.removeprefix(prefix).removesuffix(".help.txt")
    target = Path(f"plugins/{engine}/src/llmgw_engine_{engine}/surfaces/{program}-{version}.json")
    target.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(flag, ensure_ascii=False) for flag in render_surface(table)["flags"])
    target.write_text(f'{{"flags": [\n{lines}\n]}}\n', encoding="utf-8")
    return ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
