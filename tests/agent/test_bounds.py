"""A report fits into one message, whatever a node's programs print."""

import json

from llmgw_core.agent.bounds import GPUS, LONG, PORTS, bound_facts
from llmgw_core.model.node import EngineFound, Fabric, Found, Gpu, GpuReport, IbPort, IbReport, NodeFacts
from llmgw_core.model.replica import Hca
from llmgw_core.wire.facts import plain_facts
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

WIDE = "\U0001f525" * 100_000
FEW = NodeFacts("1.0", GpuReport(Found.SOME, (Gpu(0, "GPU-1"),)), IbReport(Found.SOME, (IbPort(Hca("mlx5_0")),)))


def test_what_is_short_stays_as_it_is() -> None:
    assert bound_facts(FEW) == FEW


def test_the_worst_fits_and_says_what_was_cut() -> None:
    hcas = tuple(Hca(f"{number}{WIDE[:1000]}") for number in range(5_000))
    gpus = tuple(Gpu(number, WIDE, WIDE, driver_version=WIDE, bus_id=WIDE, trouble=WIDE) for number in range(5_000))
    ports = tuple(IbPort(hca, WIDE, WIDE, WIDE, WIDE, None, WIDE, WIDE, WIDE, WIDE) for hca in hcas)
    bounded = bound_facts(
        NodeFacts(
            "1.0",
            GpuReport(Found.SOME, gpus, WIDE),
            IbReport(Found.SOME, ports, WIDE),
            tuple(Fabric(f"{number}", hcas, trouble=WIDE) for number in range(100)),
            (EngineFound(WIDE, WIDE, WIDE, WIDE, WIDE, WIDE),) * 100,
            refused_plugins=(WIDE,) * 100,
            machine_id=WIDE,
        )
    )
    assert len(json.dumps(plain_facts(bounded), ensure_ascii=False).encode()) < MESSAGE_LIMIT_BYTES
    assert (len(bounded.gpus.gpus), len(bounded.infiniband.ports)) == (GPUS, PORTS)
    assert bounded.gpus.reason.startswith("4744 more GPUs are not told; ")
    assert bounded.infiniband.reason.startswith("84 more fabrics are not told; 4744 more ports are not told; ")
    assert bounded.fabrics[0].trouble.startswith("4936 more adapters are not told; ")
    assert len(bounded.gpus.reason) == LONG
    assert bound_facts(bounded) == bounded
