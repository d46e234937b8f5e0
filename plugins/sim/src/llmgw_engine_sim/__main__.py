"""The program `llmgw-sim`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from llmgw_engine_sim.options import parse_options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(argv)
    # trio takes a while to import, and --help needs none of it.
    from llmgw_engine_sim.serving import run

    return run(options)


if __name__ == "__main__":
    sys.exit(main())
