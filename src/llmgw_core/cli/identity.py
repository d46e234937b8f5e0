"""Where a process's certificate is: `--identity PREFIX` means PREFIX.crt, PREFIX.key and ca.crt beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw_core.net.tls import CredentialFiles


def identity_files(prefix: str) -> CredentialFiles:
    """The files that `llmgw ca issue` wrote for one name."""
    from llmgw_core.net.tls import CredentialFiles

    if "\0" in prefix or not Path(prefix).name:
        raise LlmgwError(f"identity {prefix!r} can be no file: write PREFIX of PREFIX.crt and PREFIX.key")
    path = Path(prefix).expanduser()
    return CredentialFiles(
        path.with_name(f"{path.name}.crt"), path.with_name(f"{path.name}.key"), path.with_name("ca.crt")
    )
