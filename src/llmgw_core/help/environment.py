"""The environment in which an engine's help is asked for: wide, without colours, without a pager."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HELP_ENV: Mapping[str, str] = MappingProxyType(
    {
        # argparse takes its width from COLUMNS, and 80 when it writes to a pipe.
        "COLUMNS": "1000",
        # Python 3.14 colours argparse's help; FORCE_COLOR would win over NO_COLOR in some libraries, so both are set.
        "NO_COLOR": "1",
        "PYTHON_COLORS": "0",
        "TERM": "dumb",
        "PAGER": "cat",
    }
)
UNSET_HELP_ENV = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables that bring colours back even where `HELP_ENV` forbids them."""
