"""Views of a fleet of which some say far too much: quick, short, and without the others' loss."""

from __future__ import annotations

import json

from llmgw_core.control.fleet import Fleet, Node
from llmgw_core.control.view import fabric_views, node_views
from llmgw_core.model.node import Fabric, Found, Gpu, GpuReport, IbPort, IbReport, NodeFacts
from llmgw_core.model.replica import Hca
from llmgw_core.wire.facts import bounded
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

TEXT = "\0" * 1000


def worst() -> NodeFacts:
    gpus = tuple(Gpu(each, TEXT, TEXT, trouble=TEXT) for each in range(300))
    ports = tuple(IbPort(Hca(f"m{each}"), "ACTIVE", lid=each % 7 + 1, subnet_prefix=TEXT) for each in range(300))
    hcas = tuple(Hca(f"m{each}") for each in range(100))
    fabrics = tuple(Fabric(f"f{each}", hcas, trouble=TEXT) for each in range(1000))
    return bounded(NodeFacts("1", GpuReport(Found.SOME, gpus), IbReport(Found.SOME, ports), fabrics))


def test_a_hundred_of_the_worst_fit_and_every_node_and_fabric_is_shown() -> None:
    fleet, facts = Fleet(0.0), worst()
    for number in range(100):
        fleet.nodes[f"n{number}"] = Node(f"n{number}", "", "", 1e9, "", "", 1, facts, 0.0, 0.0)
    nodes, fabrics = node_views(fleet, 1.0, {}), fabric_views(fleet, 1.0)
    assert (len(nodes), len(fabrics)) == (100, 64)
    assert len(json.dumps(nodes)) < MESSAGE_LIMIT_BYTES // 4
    assert len(json.dumps(fabrics)) < MESSAGE_LIMIT_BYTES // 2
