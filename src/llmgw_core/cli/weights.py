"""`llmgw weights manifest|verify`: a copy of weights, proved whole; `llmgw ctl weights`: where a model's are."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw_core.cli.context import Context
    from llmgw_core.discovery.manifest import Comparison, Found, Manifest
    from llmgw_core.discovery.weight_tree import Tally

DIFFERS, UNCHECKED = 1, 2
MOST_JOBS = 64


def _require_path(context: click.Context, parameter: click.Parameter, given: str) -> Path:
    """`"$MODEL"` of a variable that is not set is not this directory."""
    if not given:
        raise click.UsageError("PATH is empty: name a directory or a file")
    return Path(given)


path_argument = click.argument("path", type=click.Path(), callback=_require_path)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1, MOST_JOBS),
    default=lambda: min(8, os.cpu_count() or 1),
    show_default="one for each CPU, at most 8",
    help="How many files are read at a time.",
)


@click.group()
def weights() -> None:
    """Prove that a copy of a model's weights is whole."""


@weights.command(short_help="Write what a whole copy is made of.")
@path_argument
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    show_default="llmgw-manifest.json in the directory, or beside the file",
    help="Where to write it; - prints it.",
)
@click.option("--force", is_flag=True, help="Replace a manifest that exists.")
@jobs_option
def manifest(path: Path, output: Path | None, force: bool, jobs: int) -> None:
    """Write the sizes and SHA-256 digests of the weights at PATH: a directory, a file, or all parts of a split GGUF."""
    from llmgw_core.discovery.manifest import Entry, Manifest, render_manifest
    from llmgw_core.discovery.weight_tree import manifest_beside
    from llmgw_core.discovery.weights import look_at_weights

    target = output or manifest_beside(path)
    prints = str(target) == "-"
    if not prints and not force and os.path.lexists(target):
        raise LlmgwError(f"{target} exists: `llmgw weights verify` compares with it; --force replaces it")
    found = _digested_whole(_files(path), jobs)
    unread = [f"{name} {each.unread or 'is missing'}" for name, each in found.items() if each.size is None]
    if unread or not found:
        raise LlmgwError("\n".join(f"{path}: {line}" for line in unread) or f"{path} has no files")
    made = Manifest({name: Entry(each.size or 0, each.sha256) for name, each in found.items()})
    if prints:
        show(render_manifest(made).rstrip("\n"))
    else:
        _write(target, render_manifest(made))
        show(f"wrote {target}: {_counted(made)}")
    trouble = look_at_weights(str(path.absolute()))
    if trouble:
        click.echo(f"llmgw: warning: these weights are not whole: {printable_text(trouble)}", err=True)


@weights.command(short_help="Compare a copy with its manifest.")
@path_argument
@click.option(
    "--manifest",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="the one beside the weights",
    help="What to compare with.",
)
@click.option("--quick", is_flag=True, help="Compare sizes only, and read no file.")
@jobs_option
def verify(path: Path, file: Path | None, quick: bool, jobs: int) -> None:
    """Say whether the weights at PATH are what their manifest says.

    Exit codes: 0 they are; 1 files are missing, short, changed or extra, a line for each and one for all; 2 it could
    not be checked.
    """
    from llmgw_core.discovery.manifest import compare
    from llmgw_core.discovery.weight_tree import look, manifest_beside

    _require_there(path)
    source = file or manifest_beside(path)
    wanted = _read_manifest(source, named=file is not None)
    files = _files(path)
    found = {name: look(each) for name, each in files.items()}
    if not quick:
        same = [name for name, each in found.items() if name in wanted.files and each.size == wanted.files[name].size]
        found |= _digested({name: files[name] for name in same}, jobs)
    sys.exit(_tell(path, source, wanted, compare(wanted, found), quick))


def _tell(path: Path, source: Path, wanted: Manifest, compared: Comparison, quick: bool) -> int:
    for line in compared.differences:
        show(line)
    for line in compared.unread:
        click.echo(f"llmgw: {printable_text(line)}", err=True)
    if compared.differences:
        show(f"{path} {_summary(source, wanted, compared)}")
        return DIFFERS
    if compared.unread:
        return UNCHECKED
    show(f"{path} is whole: {_counted(wanted)}, as {source} says" + (", by their sizes" if quick else ""))
    return 0


def _summary(source: Path, wanted: Manifest, compared: Comparison) -> str:
    """`is not whole: 2 of 3 files differ, and 1 is extra`."""
    differing = len(compared.differences) - compared.extra
    extra = f"{compared.extra} {'is' if compared.extra == 1 else 'are'} extra"
    if not differing:
        return f"is not what {source} says: {extra}"
    told = f"{differing} of {_files_in_words(len(wanted.files))} differ{'s' if differing == 1 else ''}"
    return f"is not whole: {told}" + (f", and {extra}" if compared.extra else "")


def _files_in_words(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _counted(manifest: Manifest) -> str:
    return f"{_files_in_words(len(manifest.files))}, {manifest.size:,} bytes"


def _require_there(path: Path) -> None:
    """Before its manifest is missed: that lies where the path is said to be."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise LlmgwError(f"there is no {path}") from None
    except OSError as error:
        raise LlmgwError(f"cannot read {path}: {error.strerror}") from error


def _read_manifest(path: Path, *, named: bool) -> Manifest:
    """`named`: by --manifest, and so perhaps a file that is good for something else."""
    from llmgw_core.discovery.manifest import NotAManifest, OtherVersion
    from llmgw_core.discovery.weight_tree import read_manifest

    try:
        return read_manifest(path)
    except FileNotFoundError:
        way = "`llmgw weights manifest` writes one, where the weights are known to be whole"
        raise LlmgwError(f"there is no manifest {path}: {way}; --manifest names another") from None
    except NotAManifest as error:
        by_mistake = named and not isinstance(error, OtherVersion)
        raise LlmgwError(f"{path} {f'{error.reason}: name another' if by_mistake else error}") from error
    except OSError as error:
        raise LlmgwError(f"cannot read {path}: {error.strerror}") from error


def _files(path: Path) -> dict[str, Path]:
    from llmgw_core.discovery.weight_tree import files_of

    try:
        return files_of(path)
    except OSError as error:
        raise LlmgwError(f"cannot read {error.filename or path}: {error.strerror}") from error
    except RecursionError:
        raise LlmgwError(f"{path} has directories in directories without end: it is no model's directory") from None


def _digested_whole(files: Mapping[str, Path], jobs: int) -> dict[str, Found]:
    """Nothing is read for hours where a file cannot be; and a pipe, whose opening waits, not at all."""
    from llmgw_core.discovery.weight_tree import look

    found = {name: look(path) for name, path in files.items()}
    return found if any(each.size is None for each in found.values()) else _digested(files, jobs)


def _digested(files: Mapping[str, Path], jobs: int) -> dict[str, Found]:
    from llmgw_core.discovery.weight_tree import Tally, digest_files, look

    tally = Tally(sum(look(path).size or 0 for path in files.values()), len(files))
    tick = _progress(tally) if sys.stderr.isatty() else lambda: None
    try:
        return digest_files(files, jobs, tally, tick)
    finally:
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)


def _progress(tally: Tally) -> Callable[[], None]:
    begun = time.monotonic()

    def tick() -> None:
        click.echo("\r\033[K" + render_progress(tally, time.monotonic() - begun), err=True, nl=False)

    return tick


def render_progress(tally: Tally, seconds: float) -> str:
    """`12.3 of 470.0 GB, 2 of 96 files, 1.21 GB/s, 379 s to go`."""
    rate = tally.done_bytes / seconds if seconds > 0 else 0.0
    left = f", {(tally.wanted_bytes - tally.done_bytes) / rate:.0f} s to go" if rate else ""
    size = f"{tally.done_bytes / 1e9:.1f} of {tally.wanted_bytes / 1e9:.1f} GB"
    return f"{size}, {tally.done_files} of {tally.files} files, {rate / 1e9:.2f} GB/s{left}"


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    import tempfile

    try:
        descriptor, name = tempfile.mkstemp(prefix=".llmgw-", dir=path.parent)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LlmgwError(f"cannot write {path}: {error.strerror}") from error


@click.command("weights")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def ctl_weights(context: Context, model: str, as_json: bool) -> None:
    """Say of each node whether the weights of MODEL are there and whole."""
    from llmgw_core.cli.asking import ask

    found = ask(context, "weights", model=model)
    show(json.dumps(found, indent=2) if as_json else render_weights(found))


def render_weights(found: dict[str, Any]) -> str:
    from llmgw_core.cli.table import render_table

    head = printable_text(f"{found['model']}: {found['source']}")
    if not found["nodes"]:
        return f"{head}\nno node has ever reported"
    rows = [(each["node"], each["state"], each["weights"], each["reason"]) for each in found["nodes"]]
    return f"{head}\n{render_table(('NODE', 'STATE', 'WEIGHTS', 'REASON'), rows)}"
