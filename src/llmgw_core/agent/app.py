"""Builds the agent and runs it until it is asked to stop."""

from __future__ import annotations

import json
import logging
import os
import signal
from typing import Any

import trio

from llmgw_core.agent.checks import EngineChecks
from llmgw_core.agent.connection import Connection
from llmgw_core.agent.facts import (
    Picture,
    infiniband_look,
    named_programs,
    unknown_programs,
    watch_hardware,
)
from llmgw_core.agent.runtime import Runtime
from llmgw_core.agent.settings import AgentSettings
from llmgw_core.agent.surroundings import watch_surroundings
from llmgw_core.discovery.weights import look_at_weights
from llmgw_core.engines import Engines
from llmgw_core.errors import LlmgwError
from llmgw_core.examine.installed import Installation, check_installed
from llmgw_core.model.identity import Role
from llmgw_core.net.renewal import Renewal, finish_replacing
from llmgw_core.net.tls import client_context, require_own
from llmgw_core.pki.files import describe_open_key
from llmgw_core.plan.fabric import impossible_fabrics
from llmgw_core.plan.plain_report import plain_report
from llmgw_core.plugins import load_engines
from llmgw_core.process import sole_owner
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES, CheckEngine, EngineChecked

_MOST_OF_REPORT_BYTES = MESSAGE_LIMIT_BYTES // 2
_log = logging.getLogger("llmgw.agent")


class CannotStart(LlmgwError):
    """An agent that would not do what its operator said."""


async def run_agent(settings: AgentSettings) -> None:
    """Until SIGTERM, SIGINT or cancellation; raises `CannotStart` where the settings cannot be followed."""
    with sole_owner(settings.state, "agent"):
        finish_replacing(settings.credentials)
        client_context(settings.credentials)  # what is wrong with a file is said at the start
        require_own(settings.credentials, Role.NODE, settings.node)
        _warn(describe_open_key(settings.credentials.key))
        impossible = impossible_fabrics(settings.fabrics, await infiniband_look(settings.ib_root).take())
        if impossible:
            raise CannotStart("\n".join(impossible))
        engines = load_engines()
        for mistake in unknown_programs(engines, settings):
            _warn(mistake)
        await _run(settings, engines)


def _warn(said: str | None) -> None:
    if said:
        _log.warning("started, and something is to be mended", extra={"reason": said})


async def _run(settings: AgentSettings, engines: Engines) -> None:
    picture = Picture(settings)
    renewal = Renewal(settings.credentials, _log)

    async def check_engine(order: CheckEngine) -> EngineChecked:
        return await _check_engine(engines, settings, order)

    checks = EngineChecks(check_engine)
    runtime = _runtime(settings, engines, picture)
    connection = Connection(settings, picture, runtime, checks.answer, renewal.watch, renewal.take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, nursery.cancel_scope)
        nursery.start_soon(watch_hardware, picture, settings)
        nursery.start_soon(runtime.run)
        nursery.start_soon(watch_surroundings, picture, settings, runtime.shards)
        nursery.start_soon(connection.keep)


def _runtime(settings: AgentSettings, engines: Engines, picture: Picture) -> Runtime:
    """With what the last agent left of engines and shards."""
    picture.change(refused_plugins=(*map(str, engines.refused), *unknown_programs(engines, settings)))
    runtime = Runtime(
        engines=engines,
        state=settings.state,
        named=named_programs(engines, settings),
        look_at_weights=look_at_weights,
        tell_engines=lambda found: picture.change(engines=found),
        tell_offers=lambda answers: picture.change(offers=answers),
        serve_ports=settings.serve_ports,
    )
    runtime.read()
    return runtime


async def _stop_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("stopping", extra={"signal": signal.Signals(number).name})
            scope.cancel()
            return


async def _check_engine(engines: Engines, settings: AgentSettings, order: CheckEngine) -> EngineChecked:
    try:
        engines.info(order.engine)
        named = named_programs(engines, settings)
        where = Installation(named.executables.get(order.engine, {}), os.environ)
        report = plain_report(await check_installed(engines, order.engine, (), where))
        return _answer(order, report)
    except LlmgwError as error:
        return EngineChecked(order.id, reason=str(error))


def _answer(order: CheckEngine, report: dict[str, Any]) -> EngineChecked:
    """The report, or that it fits into no message: to say it nevertheless would end the link."""
    size = len(json.dumps(report))
    if size > _MOST_OF_REPORT_BYTES:
        return EngineChecked(order.id, reason=f"the report has {size} bytes, which no message takes")
    return EngineChecked(order.id, report)
