"""`llmgw-onboard-node`: makes a machine a node, from the authority's host, over ssh.

Exit codes: 0 the control plane sees it · 1 something failed after changes had begun, or the control plane does not let
it in · 2 refused, and nothing was changed there · 128 and the signal's number when it was interrupted.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmgw_core.cli.ca import with_days
from llmgw_core.cli.context import Context, default_file
from llmgw_core.cli.output import show
from llmgw_core.cli.printable import printable_text
from llmgw_core.cli.progress import Progress, run_script, say, with_version
from llmgw_core.errors import LlmgwError

if TYPE_CHECKING:
    from datetime import datetime

    from llmgw_core.onboard.onboarding import Onboarding, Site
    from llmgw_core.onboard.remaining import Fleet
    from llmgw_core.onboard.request import NodeRequest

MOST_DAYS = 36500
"""As the authority has it."""
LOOK_EVERY_S = 0.5
FACTS_S = 30.0
"""How long a node that is let in may take to say what it has."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--node", required=True, help="Node id, host name and common name in one: llmgw-node04.")
@click.option("--addr", required=True, metavar="HOST", help="By which ssh reaches it.")
@click.option("--server", required=True, metavar="https://HOST:7443", help="The control plane, as the node calls it.")
@click.option(
    "--fabric", "fabrics", multiple=True, metavar="NAME[:HCA,HCA]", help="A fabric that it is on; `none` for none."
)
@click.option("--binary", type=click.Path(path_type=Path), metavar="FILE", help="A release; default: the running one.")
@click.option("--command", default="", metavar="PATH", help="An llmgw that is on the machine already, instead.")
@click.option("--nvidia-smi", default="", metavar="PATH", help="The program that lists its GPUs.")
@click.option("--ib-root", default="", metavar="DIRECTORY", help="The tree that lists its InfiniBand adapters.")
@click.option("--engine", "engines", multiple=True, metavar="PROGRAM=COMMAND", help="Where an engine's program is.")
@click.option("--ssh-user", default="root", show_default=True, help="root, or one with sudo without a password.")
@click.option("--ssh-port", type=int, default=22, show_default=True)
@click.option("--ssh-identity", default="", metavar="FILE", help="A private key; default: ssh's own choice.")
@click.option("--host-key", default="", metavar="KEY", help="What its host key must be: SHA256:..., or the public key.")
@click.option("--known-hosts", type=click.Path(path_type=Path), help="Default: in the authority's directory.")
@click.option(
    "--ca-dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="LLMGW_CA_DIR",
    default=lambda: Path.home() / ".llmgw" / "ca",
    show_default="$LLMGW_CA_DIR, else ~/.llmgw/ca",
    help="The authority's directory.",
)
@with_days
@click.option("--new-certificate", is_flag=True, help="Issue a new one even where the node's own is good.")
@click.option("--identity", metavar="PREFIX", help="An operator's, to say more at the end; default: the context's.")
@click.option(
    "--context",
    type=click.Path(dir_okay=False, path_type=Path),
    default=default_file,
    show_default="$LLMGW_CONTEXT, else ~/.llmgw/context.toml",
    help="The context file.",
)
@click.option("--wait", type=click.IntRange(0), default=60, show_default=True, metavar="SECONDS", help="0: not at all.")
@click.option("--dry-run", is_flag=True, help="Check, print every step and file, and change nothing.")
@with_version
def onboard_node(identity: str | None, context: Path, server: str, wait: int, dry_run: bool, **options: Any) -> None:
    """Make a machine a node: certificate, root, release, settings and unit, over ssh; start it, and wait for it."""
    from llmgw_core.onboard.onboarding import NotOnboarded, look

    operator = _Operator(Context(context, server, identity) if identity or context.exists() else None)
    request = _request(server, **options)
    with look(request, _site(operator, dry_run, **options)) as onboarding:
        if dry_run:
            _print_plan(onboarding)
            return
        try:
            _make_node(onboarding, wait, operator)
        except LlmgwError as error:
            raise NotOnboarded(str(error)) from error


def _make_node(onboarding: Onboarding, wait: int, operator: _Operator) -> None:
    request = onboarding.request
    _carry_out(onboarding)
    if not wait:
        show(f"{request.node} is installed at {request.login.address}; nothing was waited for")
        return
    _await(onboarding, wait)
    _tell_remaining(onboarding, operator)


def _request(
    server: str,
    *,
    node: str,
    addr: str,
    fabrics: tuple[str, ...],
    engines: tuple[str, ...],
    ssh_user: str,
    ssh_port: int,
    ssh_identity: str,
    binary: Path | None,
    command: str,
    **more: Any,
) -> NodeRequest:
    from llmgw_core.onboard.request import Login, NodeRequest

    complaints: list[str] = []
    if binary is not None and command:
        complaints.append("--binary installs a release, and --command names what is installed: give one")
    if not 1 <= more["days"] <= MOST_DAYS:
        complaints.append(f"--days {more['days']}: give 1 to {MOST_DAYS}")
    programs = _programs(engines, complaints)
    return NodeRequest(
        node=node,
        login=Login(address=addr, user=ssh_user, port=ssh_port, identity=ssh_identity),
        server=server,
        fabrics=fabrics,
        engines=programs,
        command=command,
        nvidia_smi=more["nvidia_smi"],
        ib_root=more["ib_root"],
        new_certificate=more["new_certificate"],
        complaints=tuple(complaints),
    )


def _programs(engines: tuple[str, ...], complaints: list[str]) -> dict[str, str]:
    from llmgw_core.cli.agent import split_program

    found: dict[str, str] = {}
    for each in engines:
        try:
            program, command = split_program(each)
        except click.UsageError as error:
            complaints.append(error.message)
        else:
            found[program] = command
    return found


def _site(operator: _Operator, dry_run: bool, **options: Any) -> Site:
    from llmgw_core.onboard.onboarding import Site

    return Site(
        ca_dir=options["ca_dir"],
        known_hosts=options["known_hosts"] or options["ca_dir"] / "known_hosts",
        say=say,
        now=_now,
        binary=options["binary"],
        host_key=options["host_key"],
        days=options["days"],
        remembers=not dry_run,
        revoked=operator.revoked,
        revoke=operator.revoke,
        online_from=operator.online_from,
    )


def _print_plan(onboarding: Onboarding) -> None:
    from llmgw_core.onboard.installing import describe_content, describe_step
    from llmgw_core.onboard.steps import Put, certificate_steps

    plan = onboarding.plan
    issue = certificate_steps(onboarding.request, b"(the certificate)\n", b"") if plan.why_new else ()
    if not (plan.before or issue or plan.after):
        show("nothing is to be done: all is there, and the agent runs")
    for step in (*plan.before, *issue, *plan.after):
        if step in issue[:1]:
            show(f"# issue a certificate to {onboarding.request.node}, since {plan.why_new}")
        if isinstance(step, Put):
            show(f"# {describe_step(step)}\n" + describe_content(step).rstrip("\n"))
        else:
            show(describe_step(step))


def _carry_out(onboarding: Onboarding) -> None:
    from llmgw_core.onboard.onboarding import AGAIN

    if onboarding.kept:
        say(f"its certificate stays: {onboarding.kept}")
    if not onboarding.plan.restarts:
        say("all is there already, and the agent runs: nothing is changed")
    try:
        onboarding.carry_out()
    except LlmgwError:
        raise
    except BaseException:
        for line in filter(None, (onboarding.tie_up(), AGAIN)):
            say(line)
        raise


def _await(onboarding: Onboarding, wait: int) -> None:
    from llmgw_core.onboard.awaiting import await_link
    from llmgw_core.onboard.onboarding import NotOnboarded

    request, progress = onboarding.request, Progress()
    try:
        heard = await_link(onboarding.session, wait, progress)
    except BaseException:
        progress.clear()
        say(f"{request.node} is installed at {request.login.address}, and its agent goes on calling")
        raise
    progress.clear()
    if not heard.connected:
        waited = "and waiting does not help" if heard.is_final else f"within {wait} s"
        raise NotOnboarded(
            f"{request.server} has not let {request.node} in, {waited}: {heard.reason or 'no word of why'}\n"
            + _way_out(heard.reason, request.login.address)
        )
    show(f"{request.node} is connected to {request.server}")


def _way_out(reason: str, address: str) -> str:
    from llmgw_core.onboard.request import UNIT_NAME

    if "is revoked" in reason:
        return "run this again with --new-certificate, if it may come back"
    if "two machines claim one name" in reason:
        stop = f"systemctl disable --now {UNIT_NAME}"
        return f"the agent at {address} goes on calling, and has the name once the other is away: stop one by {stop}"
    return f"journalctl -u {UNIT_NAME} on {address} goes on; mend it there or here, and run this again"


def _tell_remaining(onboarding: Onboarding, operator: _Operator) -> None:
    from llmgw_core.onboard.remaining import render_fleet, render_inventory

    name = onboarding.request.node
    fleet = operator.look(name)
    lines = render_inventory(_read_inventory(onboarding)) if fleet is None else render_fleet(name, fleet)
    for line in lines:
        show(printable_text(line))


def _read_inventory(onboarding: Onboarding) -> str:
    from llmgw_core.onboard.settings import state_of

    path = f"{state_of(onboarding.machine.settings)}/engines.json"
    try:
        return onboarding.session.run_as_root(("cat", path), 30.0).stdout
    except LlmgwError:
        return ""


class _Operator:
    """Asks the control plane, where there is an operator's certificate."""

    def __init__(self, context: Context | None) -> None:
        self._context = context

    def revoked(self) -> tuple[str, ...]:
        """None where nobody can be asked: then the control plane's refusal says so."""
        if self._context is None:
            return ()
        try:
            return tuple(str(each["serial"]) for each in self._ask([("revocations", {})])[0])
        except Exception as error:
            say(f"note: what is revoked is not known here: {_why(error)}")
            return ()

    def online_from(self, name: str) -> str:
        """Empty: it is not online, nobody knows it, or nobody can be asked."""
        try:
            node = self._ask([("node", {"node": name})])[0] if self._context is not None else {}
        except Exception:
            return ""
        return str(node["address"]) if node.get("state") == "online" else ""

    def revoke(self, serial: str) -> bool:
        """Whether it is; nobody can be asked to, or it fails: it is not."""
        from llmgw_core.provision.commands import Interrupted

        if self._context is None:
            return False
        try:
            self._ask([("revoke", {"name": "", "serial": serial, "role": "", "reason": "it was never delivered"})])
        except (Exception, Interrupted) as error:
            say(f"note: it could not be revoked: {_why(error) if isinstance(error, Exception) else error}")
            return False
        return True

    def look(self, name: str) -> Fleet | None:
        """`None`: there is no operator."""
        from llmgw_core.onboard.remaining import Fleet, has_answered

        if self._context is None:
            return None
        deadline, progress = time.monotonic() + FACTS_S, Progress()
        try:
            while not has_answered(name, found := self._look_once(name)) and time.monotonic() < deadline:
                progress("waiting for what it says of its engines and weights")
                time.sleep(LOOK_EVERY_S)
        except Exception as error:
            return Fleet(trouble=_why(error))
        finally:
            progress.clear()
        return found

    def _look_once(self, name: str) -> Fleet:
        from llmgw_core.onboard.remaining import Fleet

        node, models = self._ask([("node", {"node": name}), ("models", {})])
        names = [each["name"] for each in models]
        asked = [(what, {"model": each}) for what in ("explain", "weights") for each in names]
        answers = self._ask(asked) if asked else []
        return Fleet(node, tuple(answers[: len(names)]), tuple(answers[len(names) :]))

    def _ask(self, questions: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        from llmgw_core.cli.asking import ask_all

        assert self._context is not None  # noqa: S101
        with _trio_signals():
            return ask_all(self._context, questions)


def _why(error: Exception) -> str:
    from llmgw_core.cli.asking import why_not_reached

    return str(error) if isinstance(error, LlmgwError) else why_not_reached(error)


@contextmanager
def _trio_signals() -> Iterator[None]:
    """trio ends by itself on the usual handlers; ours raise in the middle of it."""
    from llmgw_core.provision.commands import SIGNALS, Interrupted

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT) from None
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise Interrupted(signal.SIGINT) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC)  # noqa: TID251 - the edge, from which `now` is passed on


def main() -> None:
    """The command's entry point."""
    from llmgw_core.onboard.onboarding import NotOnboarded

    run_script(onboard_node, "llmgw-onboard-node", NotOnboarded)
