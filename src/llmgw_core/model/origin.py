"""Whose a flag is."""

from __future__ import annotations

LLMGW = "llmgw"
"""The origin of the flags that llmgw itself passes; others carry the profile's name, and no profile has this one."""
