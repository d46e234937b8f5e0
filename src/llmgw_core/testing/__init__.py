"""What tests of llmgw and of its plugins share. Imported by tests only; needs pytest and hypothesis."""

from llmgw_core.testing.contract import EngineContract, departs
from llmgw_core.testing.recorded import recorded_directory, recorded_help, recorded_helps, recorded_parser

__all__ = ["EngineContract", "departs", "recorded_directory", "recorded_help", "recorded_helps", "recorded_parser"]
