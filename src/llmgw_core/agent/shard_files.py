"""What the agent keeps of shards on disk: for each attempt a directory, and the highest generation of each replica.

A directory has `shard.json` as long as something of the shard may be left, the reaper's `socket` and copy, `work` for
the engine's own files, and `logs` and `key`, which stay: those of the last generations, and of the first failure of a
loop.
Rules: a file is replaced as a whole; one that is damaged is told and stops nobody. All of this may block.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from threading import Lock

from attrs import field, frozen
from cattrs import Converter
from cattrs.errors import BaseValidationError

from llmgw_core.engine import Stop
from llmgw_core.errors import LlmgwError
from llmgw_core.model.launch import RunShard
from llmgw_core.model.replica import frozen_mapping
from llmgw_core.model.shard import ShardFailure, ShardPhase
from llmgw_core.plan.shard_tree import ProcessId

FORMAT = 1
KEPT_GENERATIONS = 3
MOST_GENERATION = 2**53
"""No replica lives so long: what is above it is a damaged file."""
_FIRST_FAILURE, _STATE, _KEY = "first_failure", "shard.json", "key"
_log = logging.getLogger("llmgw.agent")


@frozen(kw_only=True)
class Kept:
    """What the next agent must know of a shard."""

    order: RunShard
    phase: ShardPhase
    failure: ShardFailure | None = None
    stopping: bool = False
    in_flight_until: float = 0.0
    """Until when its requests in flight are waited for, once it is to stop; seconds since 1970."""
    argv: tuple[str, ...] = ()
    stop: Stop = field(factory=Stop)
    workers_first: bool = False
    engine_version: str | None = None
    help_digest: str | None = None
    sidecar_ports: Mapping[str, int] = field(factory=dict, converter=frozen_mapping, hash=False)
    seen_ready: bool = False
    boot_id: str = ""
    reaper: ProcessId | None = None
    fronts: Mapping[str, ProcessId] = field(factory=dict, converter=frozen_mapping, hash=False)


def replace_file(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


class ShardFiles:
    def __init__(self, state: Path) -> None:
        self._root = state.absolute() / "shards"
        self._generations_file = state.absolute() / "generations.json"
        self._one_writer = Lock()
        self.highest: dict[str, int] = {}
        """By replica, of the attempts that this agent was ever told of."""

    def directory(self, replica: str, rank: int, generation: int) -> Path:
        return self._root / f"{_shard_name(replica, rank)}.{generation}"

    def generations(self, replica: str, rank: int) -> list[int]:
        """Those that have a directory, the latest first."""
        names = (path.name.rpartition(".")[2] for path in self._root.glob(f"{_shard_name(replica, rank)}.*"))
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def read_highest(self) -> None:
        try:
            read = json.loads(self._generations_file.read_text(encoding="utf-8"))
            self.highest = {name: each for name, each in read.items() if type(each) is int and each <= MOST_GENERATION}
            if self.highest != read:
                raise ValueError(f"{sorted(read.keys() - self.highest.keys())[:3]} are no generations of anything")
        except FileNotFoundError:
            pass
        except (OSError, ValueError, AttributeError) as error:
            _log.error("generations not read", extra={"file": str(self._generations_file), "reason": str(error)})

    def write_highest(self) -> None:
        with self._one_writer:  # shards begin at the same time, each in a thread of its own
            replace_file(self._generations_file, json.dumps(dict(self.highest)))

    def make(self, directory: Path) -> None:
        for each in (self._root, directory, directory / "work"):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_reaper(self, directory: Path) -> Path:
        """The reaper's source, in the shard's own directory: no upgrade changes it under a running shard."""
        path = directory / "reaper.py"
        replace_file(path, files("llmgw_core.agent").joinpath("reaper.py").read_text(encoding="utf-8"))
        return path

    def write(self, directory: Path, kept: Kept) -> None:
        replace_file(directory / _STATE, json.dumps({"format": FORMAT, "shard": Converter().unstructure(kept)}))

    def read_all(self) -> Iterator[Kept]:
        """The shards of which something may be left."""
        for path in sorted(self._root.glob(f"*/{_STATE}")):
            try:
                read = json.loads(path.read_text(encoding="utf-8"))
                if read["format"] != FORMAT:
                    raise LlmgwError(f"its format is {read['format']}")
                yield Converter().structure(read["shard"], Kept)
            except (OSError, ValueError, KeyError, TypeError, BaseValidationError, LlmgwError) as error:
                _log.error("shard not known any more", extra={"file": str(path), "reason": str(error)[:200]})

    def write_key(self, directory: Path, key: str) -> None:
        """What its engine asks for: it is kept as long as the engine's log, in which it may stand."""
        if key:
            replace_file(directory / _KEY, key)

    def key_of(self, replica: str, rank: int, generation: int) -> str:
        """Empty: it asked for nothing."""
        with suppress(OSError, ValueError):
            return (self.directory(replica, rank, generation) / _KEY).read_text(encoding="utf-8")
        return ""

    def forget(self, directory: Path) -> None:
        """Nothing of the shard is left but its logs."""
        for path in (directory / _STATE, directory / "reaper.py", directory / "socket"):
            with suppress(OSError):
                path.unlink()
        shutil.rmtree(directory / "work", ignore_errors=True)

    def keep_failure(self, replica: str, rank: int, generation: int) -> None:
        """This attempt's log is the one to keep, unless an earlier failure's is kept."""
        if self.first_failure(replica, rank) is None:
            with suppress(OSError):
                (self.directory(replica, rank, generation) / _FIRST_FAILURE).touch()

    def first_failure(self, replica: str, rank: int) -> int | None:
        for generation in reversed(self.generations(replica, rank)):
            if (self.directory(replica, rank, generation) / _FIRST_FAILURE).exists():
                return generation
        return None

    def drop_failure(self, replica: str, rank: int) -> None:
        for generation in self.generations(replica, rank):
            with suppress(OSError):
                (self.directory(replica, rank, generation) / _FIRST_FAILURE).unlink()

    def prune(self, replica: str, rank: int) -> None:
        """Logs of old generations go; what may still run stays, and so does the first failure."""
        for generation in self.generations(replica, rank)[KEPT_GENERATIONS:]:
            directory = self.directory(replica, rank, generation)
            if not (directory / _STATE).exists() and not (directory / _FIRST_FAILURE).exists():
                shutil.rmtree(directory, ignore_errors=True)


def _shard_name(replica: str, rank: int) -> str:
    """Fit for a file, and no other replica's."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", replica)[:40]
    return f"{plain}-{hashlib.sha256(replica.encode()).hexdigest()[:10]}.{rank}"
