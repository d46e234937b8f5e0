"""What tests of llmgw and of its plugins share. Never imported by what runs.

Names are imported when they are first used: the contract needs pytest and hypothesis, a fake that a demonstration uses
does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw_core.lazy import lazy_names

if TYPE_CHECKING:
    from llmgw_core.testing.contract import EngineContract as EngineContract
    from llmgw_core.testing.contract import departs as departs
    from llmgw_core.testing.recorded import recorded_directory as recorded_directory
    from llmgw_core.testing.recorded import recorded_help as recorded_help
    from llmgw_core.testing.recorded import recorded_helps as recorded_helps
    from llmgw_core.testing.recorded import recorded_parser as recorded_parser

__getattr__, __all__ = lazy_names(
    globals(),
    {
        "llmgw_core.testing.contract": ("EngineContract", "departs"),
        "llmgw_core.testing.recorded": ("recorded_directory", "recorded_help", "recorded_helps", "recorded_parser"),
    },
)
