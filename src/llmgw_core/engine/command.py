"""The command of one shard, as a value: nothing here runs it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen

from llmgw_core.model.replica import Secret, frozen_mapping


class LaunchOrder(Enum):
    TOGETHER = "together"
    WORKERS_FIRST = "workers first"


@frozen
class File:
    """A file that must exist before the program starts."""

    path: str
    """Absolute, inside the shard's own directory."""
    content: str | Secret
    mode: int = 0o600


@frozen
class StopStep:
    """Send `signal` to the front process, then wait up to `wait_s` seconds for every process to be gone."""

    signal: str
    wait_s: float


@frozen
class Stop:
    """How to stop a shard. After the last step SIGKILL goes to its whole tree."""

    steps: tuple[StopStep, ...] = (StopStep("SIGTERM", 30.0),)
    head_first: bool = False
    """Stop the head's shard and wait for its end before the workers are asked."""
    drains: bool = False
    """Whether the first signal lets requests in flight end; if not, they must have ended before it is sent."""


@frozen
class Command:
    """What to run for one shard. `argv` is the whole command line."""

    program: str
    """Which of the engine's programs this is: the name of an `EngineInfo.programs` entry."""
    executable: tuple[str, ...]
    args: tuple[str, ...]
    """The arguments that llmgw passes; engine-check judges these."""
    extra_args: tuple[str, ...] = ()
    """The operator's arguments, after `args`; engine-check judges these too."""
    prefix: tuple[str, ...] = ()
    """What a site's wrapper puts before the engine (`numactl --interleave=all`); nobody checks it."""
    env: Mapping[str, str] = field(factory=dict, converter=frozen_mapping, hash=False)
    secret_env: Mapping[str, Secret] = field(factory=dict, converter=frozen_mapping, hash=False)
    unset_env: tuple[str, ...] = ()
    """Patterns of inherited variables to drop (`LLAMA_ARG_*`), before `env` and `secret_env` are set."""
    directories: tuple[str, ...] = ()
    """Directories to make, absolute and inside the shard's own, before the program starts."""
    files: tuple[File, ...] = ()
    launch_order: LaunchOrder = LaunchOrder.TOGETHER
    stop: Stop = Stop()
    ignore_sigpipe: bool = False
    """Start with SIGPIPE ignored, as Python itself runs."""

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self.prefix, *self.executable, *self.args, *self.extra_args)
