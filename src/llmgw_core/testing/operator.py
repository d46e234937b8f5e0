"""An operator's questions without a command's start, which takes ten times as long."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import trio

from llmgw_core.net.call import Server, call
from llmgw_core.net.tls import CredentialFiles
from llmgw_core.wire.message import PROTOCOL, Answer, Ask, Hello

ANSWER_S = 60.0
"""Only a test that fails takes so long."""


def ask(server: Server, name: str, credentials: CredentialFiles, what: str, **arguments: Any) -> Any:
    """The control plane's answer; raises what the link does, an AssertionError where the answer is another."""
    return trio.run(_ask, server, name, credentials, what, arguments)


async def _ask(server: Server, name: str, credentials: CredentialFiles, what: str, arguments: dict[str, Any]) -> Any:
    now = datetime.now(UTC)  # noqa: TID251 - certificates are judged by the real clock
    with trio.fail_after(ANSWER_S):
        async with call(server, credentials, now) as link:
            await link.say(Hello(PROTOCOL, name, "0.1.0"))
            await link.hear()
            await link.say(Ask(1, what, arguments))
            answer = await link.hear()
    assert isinstance(answer, Answer), answer
    return answer.value
