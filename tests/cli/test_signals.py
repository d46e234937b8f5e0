"""An end by a signal takes what was started with it."""

from __future__ import annotations

import signal
import subprocess
import sys

_SIGNALLED_AT_ONCE = """
import os, signal, trio
from llmgw_core.cli.signals import until_signalled

async def work():
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await trio.sleep(60)
    finally:
        print("cleaned up", flush=True)

trio.run(until_signalled, work)
"""


def test_a_signal_that_comes_with_the_first_step_of_the_work_cancels_it() -> None:
    ended = subprocess.run([sys.executable, "-c", _SIGNALLED_AT_ONCE], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "cleaned up\n"), ended.stderr
