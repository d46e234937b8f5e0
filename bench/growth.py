"""`make bench`: how the time to read a text grows with its length, for texts that are made to be slow to read.

Each shape is read with N of its parts and with 8N, in turn; a time is CPU of this process, the best of several. A row
has both and their ratio: about 8 where reading goes with the length, 64 where it goes with its square. A ratio over
its limit is marked, and the exit code is 1; a text that is read within some milliseconds has none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from attrs import frozen
from bench.figures import Figures

from llmgw_core.discovery.nvidia_smi import read_gpus
from llmgw_core.engine import NotCompleteHelp
from llmgw_core.help.argparse_text import Program, read_argparse_help
from llmgw_engine_llamacpp import llmgw_read_help

TIMES = 8
MOST_GROWTH = 30.0
MEASURED_S = 0.020
"""What takes less is as much the clock's as the reader's."""
ROUNDS = 3
PROGRAM = Program("engine --help", ways_out=(("no device", "run it on another node"),))

Read = Callable[[str], object]


@frozen
class Shape:
    read: Read
    head: str
    part: str
    """Its number stands where `{0}` does."""
    many: int = 16_000
    """Parts of the longer text."""

    def text(self, count: int) -> str:
        return self.head + "".join(self.part.format(number) for number in range(count)) + "x\n"


def main() -> int:
    figures = Figures()
    for name, shape in SHAPES.items():
        short_s, long_s = time_both(shape)
        limit = MOST_GROWTH if long_s >= MEASURED_S else None
        what = f"{name}: {short_s * 1e3:.1f} ms, {TIMES} times the text {long_s * 1e3:.1f} ms"
        figures.show(what, long_s / short_s, "times", f"{TIMES}, at most {MOST_GROWTH:g}", limit)
    return 1 if figures.over else 0


def time_both(shape: Shape) -> tuple[float, float]:
    texts = shape.text(shape.many // TIMES), shape.text(shape.many)
    taken = [[cpu_s(shape.read, text) for text in texts] for _ in range(ROUNDS)]
    short_s, long_s = map(min, zip(*taken, strict=True))
    return short_s, long_s


def cpu_s(read: Read, text: str) -> float:
    before = time.process_time()
    with suppress(NotCompleteHelp):
        read(text)
    return time.process_time() - before


of_argparse = partial(Shape, lambda text: read_argparse_help(text, PROGRAM))
of_llama = partial(Shape, lambda text: llmgw_read_help("llama-server", text))
of_nvidia_smi = partial(Shape, lambda text: read_gpus(text, ("index", "uuid", "name")))
DEPRECATED = "  --x{0} X\n                        --x{0} is deprecated. Use --y{0} instead.\n"
FLAGS = "  --flag-{0} N\n                 does {0}\n"

SHAPES = {
    "flags": of_argparse("usage: e [-h]\n\noptions:\n  -h, --help  show\n", FLAGS),
    "deprecated options": of_argparse("", DEPRECATED),
    "usage": of_argparse("usage: e", " [--x{0} X]"),
    "negatives": of_argparse("usage: e [--a", " | --no-a"),
    "blanks": of_argparse("  --x X  deprecated.", " " * 20),
    "one word": of_argparse("  --x X  deprecated ", "a-{{b,b,b,b,b,b}}"),
    "line ends": of_argparse("", "\r" * 20),
    "escapes": of_argparse("", "\x1b[0;0;0;0;"),
    "titles": of_argparse("  --x {a\n", "Title:\n"),
    "replaced by a pattern": of_llama("", "--a{0} N    the argument has been removed. use --b{0}-*-x\n", 20_000),
    "GPUs": of_nvidia_smi("", "{0}, GPU-{0:08x}, H200\n", 30_000),
}


if __name__ == "__main__":
    sys.exit(main())
