"""An engine report as JSON values: what `engine-check --json` prints, and what an agent sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmgw_core.plan.engine_check import DryRun, EngineReport, FlagReport, JudgedCommand


def plain_report(report: EngineReport) -> dict[str, Any]:
    return {
        "engine": report.engine,
        "executable": report.executable,
        "engine_version": report.engine_version,
        "source": report.source,
        "outcome": report.outcome.value,
        "reason": report.reason,
        "warnings": list(report.warnings),
        "flags": [_plain_flag(flag) for flag in report.flags],
        "commands": [_plain_command(each) for each in report.commands],
        "dry_runs": [_plain_run(run) for run in report.dry_runs],
    }


def _plain_flag(flag: FlagReport) -> dict[str, Any]:
    return {
        "flag": flag.flag,
        "role": flag.role,
        "origin": flag.origin,
        "verdict": flag.verdict.value,
        "detail": flag.detail,
        "suggestions": list(flag.suggestions),
    }


def _plain_command(each: JudgedCommand) -> dict[str, Any]:
    return {"role": each.role, "profile": each.profile, "argv": list(each.argv)}


def _plain_run(run: DryRun) -> dict[str, Any]:
    said = None if run.complaints is None else list(run.complaints)
    return {"role": run.role, "profile": run.profile, "complaints": said}
