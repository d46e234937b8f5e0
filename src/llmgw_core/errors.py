"""The errors that cross layers.

Three kinds: the operator's mistake and the world's (`LlmgwError`: one line says what, where and the way out),
and ours (any other exception: a traceback).
"""

from __future__ import annotations


class LlmgwError(Exception):
    """Something an operator can act on; `str()` is the whole message, fit to be printed as it is."""


class ImpossibleReplica(LlmgwError):
    """A replica that no engine, or not this engine, could ever run."""

    def __init__(self, replica_id: str, reasons: tuple[str, ...]) -> None:
        self.replica_id = replica_id
        self.reasons = reasons
        super().__init__(f"replica {replica_id} is impossible: {'; '.join(reasons)}")


class NotCompleteHelp(LlmgwError):
    """A text from which no flag may be judged: empty, another level of help, an error message, a traceback.

    The one error that an engine's help reader raises.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class UnknownEngine(LlmgwError):
    """An engine name that no usable plugin answers to."""
