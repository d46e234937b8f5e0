from pathlib import Path
from typing import Any

import pytest

from llmgw_core.agent.settings import AgentFile, parse_ports, understand
from llmgw_core.errors import LlmgwError
from llmgw_core.model.node import RENDEZVOUS_PORTS, SERVE_PORTS, PortRange
from llmgw_core.net.call import Server


def a_file(**changes: Any) -> AgentFile:
    given = {"node": "gpu1", "server": "https://10.0.0.140:7443", "certificate": "a", "key": "b", "authority": "c"}
    return AgentFile(**{**given, **changes})


def test_a_file_is_understood_with_its_defaults() -> None:
    settings = understand(a_file(fabrics=("ib-b:mlx5_2,mlx5_3",)))
    assert (settings.node, settings.server, settings.state) == (
        "gpu1",
        Server("10.0.0.140"),
        Path("/var/lib/llmgw/agent"),
    )
    assert (settings.serve_ports, settings.rendezvous_ports) == (SERVE_PORTS, RENDEZVOUS_PORTS)
    assert settings.fabrics[0].name == "ib-b"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node": "gpu1/CN=admin"}, "cannot be a name"),
        ({"server": "10.0.0.140:7443"}, "write https://HOST:7443"),
        ({"server": "https://h:99999"}, "write https://HOST:7443"),
        ({"server": "https://" + "a" * 64}, "at most 63"),
        ({"state": "/x\0y"}, "NUL"),
        ({"state": ""}, "empty"),
        ({"ib_root": "/sys\0"}, "NUL"),
        ({"serve_ports": "1²000-18999"}, "expected FIRST-LAST"),
        ({"serve_ports": "1" * 5000 + "-18999"}, "expected FIRST-LAST"),
        ({"serve_ports": "18000"}, "expected FIRST-LAST"),
        ({"serve_ports": "19000-18000"}, "between 1 and 65535"),
        ({"serve_ports": "18000-70000"}, "between 1 and 65535"),
        ({"serve_ports": "18000-19500"}, "overlap"),
        ({"fabrics": ("a:mlx5_1", "b:mlx5_1")}, "mlx5_1"),
    ],
)
def test_what_cannot_be_meant_is_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(LlmgwError, match=said):
        understand(a_file(**changes))


@pytest.mark.parametrize(("text", "ports"), [("1-1", PortRange(1, 1)), ("18000-18999", SERVE_PORTS)])
def test_ranges_include_both_ends(text: str, ports: PortRange) -> None:
    assert parse_ports(text) == ports
