"""Engine reports for people and for machines."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmgw_core.cli.table import render_table
from llmgw_core.plan.plain_report import plain_report

if TYPE_CHECKING:
    from llmgw_core.plan.engine_check import DryRun, EngineReport, FlagReport, JudgedCommand

WAY_ON_A_NODE = "where it is, `[engines]` in that node's agent.toml says, or `llmgw agent --engine PROGRAM=COMMAND`"
EXIT_CODES = {"accepted": 0, "findings": 1, "unchecked": 2}


def exit_code(reports: Sequence[EngineReport]) -> int:
    """The code of the report that matters most: findings, then what could not be checked."""
    codes = {EXIT_CODES[report.outcome.value] for report in reports}
    return 1 if 1 in codes else max(codes, default=2)


def with_way_out(report: EngineReport, way: str) -> EngineReport:
    """Of an engine that was not found, `way` too: what names it here does not name it there."""
    from attrs import evolve

    from llmgw_core.examine.executable import NOT_FOUND

    return evolve(report, reason=f"{report.reason}; {way}") if report.reason.startswith(NOT_FOUND) else report


def render_json(reports: Sequence[EngineReport], *, as_list: bool) -> str:
    plain = [plain_report(report) for report in reports]
    return json.dumps(plain if as_list else plain[0], indent=2, ensure_ascii=False)


def render_report(report: EngineReport, *, verbose: bool = False) -> str:
    """What was examined, what came out, then each flag that is not simply accepted."""
    lines = [f"{report.engine}: {_headline(report)}"]
    if report.executable:
        lines.append(f"  examined {report.executable}, version {report.engine_version or 'unknown'}")
    lines.append(f"  source   {report.source}")
    lines += [f"  warning  {warning}" for warning in report.warnings]
    lines += [_command_line(each) for each in report.commands] if verbose else []
    lines += _flag_lines(report.flags, verbose=verbose)
    lines += [line for run in report.dry_runs for line in _run_lines(run)]
    return "\n".join(lines)


def _command_line(each: JudgedCommand) -> str:
    return f"  command  {shlex.join(each.argv)}  [{each.profile}, {each.role}]"


def _headline(report: EngineReport) -> str:
    total = len({(flag.flag, flag.origin) for flag in report.flags})
    refused = len({(flag.flag, flag.origin) for flag in report.flags if not flag.verdict.passes})
    if report.outcome.value == "accepted":
        return f"accepts all {total} flags"
    if report.outcome.value == "unchecked":
        return f"could not be checked: {report.reason}"
    found = [f"refuses {refused} of {total} flags"] if refused else []
    if any(run.complaints for run in report.dry_runs):
        found.append("its dry run refuses the command")
    return "; ".join([*found, *([report.reason] if report.reason else [])])


def _flag_lines(flags: Sequence[FlagReport], *, verbose: bool) -> list[str]:
    shown = [flag for flag in flags if verbose or flag.verdict.value not in ("accepted", "unchecked")]
    grouped: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for flag in shown:
        key = (flag.flag, flag.origin, flag.verdict.value, flag.detail, flag.suggestions)
        roles = grouped.setdefault(key, [])
        if flag.role not in roles:
            roles.append(flag.role)
    lines = []
    for (name, origin, verdict, detail, suggestions), roles in grouped.items():
        said = f": {detail}" if detail else ""
        lines.append(f"  {name}  {verdict}{said}  [{origin}, {' and '.join(roles)}]")
        if suggestions and verdict != "accepted":
            lines.append(f"      suggested: {' | '.join(suggestions)}")
    return lines


def _run_lines(run: DryRun) -> list[str]:
    led = f"  dry run  {run.profile}, {run.role}:"
    if run.complaints is None:
        return [f"{led} this engine has none for it, or it proved nothing"]
    return [f"{led} {complaint}" for complaint in run.complaints] or [f"{led} accepted"]


def render_versions(reports: Sequence[EngineReport]) -> str:
    """Which recorded versions accept, and the first flag that each of the others refuses."""
    rows = [(report.engine_version or "unknown", report.outcome.value, _first_refused(report)) for report in reports]
    return render_table(("VERSION", "OUTCOME", "FIRST REFUSED FLAG"), rows)


def _first_refused(report: EngineReport) -> str:
    for flag in report.flags:
        if not flag.verdict.passes:
            whose = "" if flag.origin == "llmgw" else f", {flag.origin}"
            return f"{flag.flag} ({flag.verdict.value}{whose})"
    return report.reason
