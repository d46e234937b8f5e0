"""The agent.toml of a new node: valid for any value, and what an operator added stays."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.onboard.request import Login, NodeRequest
from llmgw_core.onboard.settings import node_of, plan_values, render_settings, settings_problems, state_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def a_request(**more: object) -> NodeRequest:
    told = {"node": "n1", "login": Login(address="10.0.0.144"), "server": "https://10.0.0.140:7443", **more}
    return NodeRequest(**told)  # type: ignore[arg-type]


@given(path=TEXTS, program=TEXTS, command=TEXTS)
def test_any_path_and_command_are_read_as_they_were_given(path: str, program: str, command: str) -> None:
    request = a_request(ib_root=path, nvidia_smi=path, engines={program: command})
    read = tomllib.loads(render_settings(plan_values(request, None)))
    assert (read["ib_root"], read["nvidia_smi"], read["engines"]) == (path, path, {program: command})


def test_a_value_may_be_the_name_of_a_key() -> None:
    request = a_request(node="node", ib_root="state", engines={"server": "engines"})
    read = tomllib.loads(render_settings(plan_values(request, None)))
    assert (read["node"], read["ib_root"], read["engines"]) == ("node", "state", {"server": "engines"})


def test_what_was_there_stays_where_no_option_says_otherwise() -> None:
    before = render_settings(plan_values(a_request(fabrics=("ib-a",), engines={"vllm": "/a", "sglang": "/s"}), None))
    before = before.replace("\n[engines]", '\nserve_ports = "20000-20099"\n[engines]')
    values = plan_values(a_request(engines={"vllm": "/b"}), before)
    assert values["fabrics"] == ["ib-a"]
    assert values["serve_ports"] == "20000-20099"
    assert values["engines"] == {"vllm": "/b", "sglang": "/s"}
    assert plan_values(a_request(fabrics=("none",)), before)["fabrics"] == []
    assert render_settings(plan_values(a_request(), render_settings(values))) == render_settings(values)


@pytest.mark.parametrize(
    ("more", "before", "said"),
    [
        ({"server": "http://10.0.0.140"}, None, "is no address of a control plane"),
        ({"fabrics": ("ib-b:",)}, None, "ib-b"),
        ({"fabrics": ("a:mlx5_2", "b:mlx5_2")}, None, "mlx5_2"),
        ({}, "node = ", "agent.toml:1"),
        ({}, 'colour = "blue"\n', "unknown key colour"),
        ({"nvidia_smi": "/opt/\udcff"}, None, "is not text in UTF-8"),
        ({}, 'ib_root = "/srv/caf\udce9"\n', "is not text in UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_told(more: dict[str, object], before: str | None, said: str) -> None:
    assert [line for line in settings_problems(a_request(**more), before) if said in line]


def test_no_mistake_hides_another() -> None:
    before = 'serve_ports = "1-x"\naddress = "0.0.0.0"\nserver = "of no account, since it is replaced"\n'
    told = settings_problems(a_request(server="http://x", fabrics=("none", "ib-b:")), before)
    for said in ("--fabric none means", "server 'http://x'", "--fabric 'ib-b:'", "toml: ports '1-x'", "toml: address"):
        assert len([line for line in told if said in line]) == 1, (said, told)
    assert len(told) == 5


def test_whose_settings_they_are_is_read_with_care() -> None:
    assert node_of('node = "n2"\n') == "n2"
    assert [node_of(text) for text in (None, "node = 1\n", "no TOML")] == ["", "", ""]
    assert [state_of(text) for text in (None, "no TOML", 'state = "/s"\n')] == ["/var/lib/llmgw/agent"] * 2 + ["/s"]
