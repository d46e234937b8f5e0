"""Which ports an attempt gets."""

from llmgw_core.model.node import PortRange
from llmgw_core.plan.port import rendezvous_port, serve_port


def test_the_first_generation_begins_at_the_beginning_and_goes_on_to_the_next_free_port() -> None:
    assert serve_port(PortRange(18000, 18999), {18000, 18001}, 1) == 18002
    assert rendezvous_port(PortRange(19000, 19999), {19000}, 1) == 19020


def test_a_rendezvous_port_has_twenty_free_ones_after_it() -> None:
    assert rendezvous_port(PortRange(19000, 19999), {19019}, 1) == 19020
    assert rendezvous_port(PortRange(19000, 19999), {19013, 19025}, 1) == 19040


def test_the_ports_of_the_last_attempt_are_taken_only_where_there_are_no_others() -> None:
    two = PortRange(18000, 18001)
    assert [serve_port(two, (), generation, last=(18000,)) for generation in (1, 2, 3)] == [18001] * 3
    assert serve_port(two, {18001}, 1, last=(18000,)) == 18000
    assert [rendezvous_port(PortRange(19000, 19039), (), n, last=(19000,)) for n in (1, 2, 3)] == [19020] * 3
    assert rendezvous_port(PortRange(19000, 19010), (), 2, last=(19000,)) == 19000


def test_a_full_range_has_none() -> None:
    assert serve_port(PortRange(18000, 18001), {18000, 18001}, 5) is None
    assert rendezvous_port(PortRange(19000, 19019), {19007}, 5) is None
