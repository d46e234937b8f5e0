"""Placeholders: those that the catalog promises, and nothing else."""

from llmgw_core.model.catalog import Profile, Sidecar
from llmgw_core.plan.sidecar import needed_ports, placed_profile, placed_sidecar, stand_in_ports

CACHE = Sidecar(
    command=("cache", "--port", "{port}", "--json", '{"a": {}}'),
    env={"PEER": "{store.port}", "DIR": "{directory}/x"},
    ready_file="{directory}/up",
)
STORE = Sidecar(command=("store", "{port}"), ready_path="/")
WAITS = Sidecar(command=("waits",), ready_file="/run/up")
PROFILE = Profile(
    engine="vllm",
    sidecars={"cache": CACHE, "store": STORE, "waits": WAITS},
    extra_args=("--kv", '{"port": {cache.port}, "other": "{none.port}"}', "{port}"),
    env={"STORE": "tcp://127.0.0.1:{store.port}"},
)
PORTS = {"cache": 18900, "store": 18901}


def test_the_sidecars_that_take_a_port_are_known_in_order() -> None:
    assert needed_ports(PROFILE) == ("cache", "store")
    assert list(stand_in_ports(PROFILE)) == ["cache", "store"]


def test_a_sidecar_is_told_its_own_port_and_the_others() -> None:
    placed = placed_sidecar("cache", CACHE, PORTS, "/d")
    assert placed.command == ("cache", "--port", "18900", "--json", '{"a": {}}')
    assert dict(placed.env) == {"PEER": "18901", "DIR": "/d/x"}
    assert (placed.port, placed.ready_file, placed.ready_path) == (18900, "/d/up", None)
    assert placed_sidecar("waits", WAITS, PORTS, "/d").port is None


def test_the_engine_is_told_what_it_names() -> None:
    placed = placed_profile(PROFILE, PORTS, "/d")
    assert placed.extra_args == ("--kv", '{"port": 18900, "other": "{none.port}"}', "{port}")
    assert dict(placed.env) == {"STORE": "tcp://127.0.0.1:18901"}
