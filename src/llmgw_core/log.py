"""Structured logs: a constant event and keys, one line each, as text for people or JSON for collectors."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _keys(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _ORDINARY}


class TextFormatter(logging.Formatter):
    """`2026-11-30T05:16:00 INFO node connected node=gpu1 address=10.0.0.11`."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        keys = "".join(f" {name}={_shown(value)}" for name, value in _keys(record).items())
        line = f"{self.formatTime(record, self.default_time_format)} {record.levelname} {record.getMessage()}{keys}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(" \"'=") else json.dumps(text)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": record.created, "level": record.levelname, "event": record.getMessage(), **_keys(record)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logs(*, as_json: bool = False, level: int = logging.INFO) -> None:
    """Everything of llmgw goes to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logger = logging.getLogger("llmgw")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
