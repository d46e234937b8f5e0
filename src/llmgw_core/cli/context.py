"""Which control plane an operator's commands ask, and as whom: from a file, so that commands need no flags."""

from __future__ import annotations

import os
from pathlib import Path

import click
from attrs import frozen

from llmgw_core.cli.output import show
from llmgw_core.errors import LlmgwError


@frozen(kw_only=True)
class ContextFile:
    """The file's keys."""

    server: str
    identity: str


@frozen
class Context:
    """What the command line gave; what it did not give is the file's."""

    file: Path
    server: str | None
    identity: str | None

    def resolve(self) -> ContextFile:
        """Raises where neither the command line nor the file says enough."""
        if self.server and self.identity:
            return ContextFile(server=self.server, identity=self.identity)
        kept = self._read()
        return ContextFile(server=self.server or kept.server, identity=self.identity or kept.identity)

    def _read(self) -> ContextFile:
        from llmgw_core.codec import parse_file, read_toml_text

        try:
            text = read_toml_text(self.file)
        except FileNotFoundError:
            way = "llmgw ctl use --server https://HOST:7443 --identity PREFIX"
            raise LlmgwError(f"no control plane is named, and there is no {self.file}; `{way}` writes it") from None
        except OSError as error:
            raise LlmgwError(f"cannot read {self.file}: {error.strerror}") from error
        return parse_file(text, str(self.file), ContextFile)


def default_file() -> Path:
    home = os.path.expanduser("~")
    if home == "~":  # neither HOME nor an entry in passwd: a container's user, a bare tree
        home = "/"
    return Path(os.environ.get("LLMGW_CONTEXT") or f"{home}/.llmgw/context.toml")


@click.command()
@click.option("--server", required=True, metavar="https://HOST:7443")
@click.option("--identity", required=True, metavar="PREFIX", help="PREFIX.crt, PREFIX.key and ca.crt beside them.")
@click.pass_obj
def use(context: Context, server: str, identity: str) -> None:
    """Write the context file, so that the other commands need no flags."""
    from llmgw_core.cli.identity import identity_files
    from llmgw_core.model.identity import Role
    from llmgw_core.net.call import parse_server
    from llmgw_core.net.tls import require_own
    from llmgw_core.pki.files import read_pair

    prefix = str(Path(identity).absolute())
    files = identity_files(prefix)
    read_pair(files.certificate, files.key)
    require_own(files, Role.OPERATOR)
    kept = f"server = {_quoted(str(parse_server(server)))}\nidentity = {_quoted(prefix)}\n"
    _write(context.file, kept)
    show(f"wrote {context.file}")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LlmgwError(f"cannot write {file}: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path, or half a character in the text
        raise LlmgwError(f"cannot write {str(file)!r}: {error}") from error


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)  # a TOML basic string takes JSON's escapes
