from llmgw_core.testing import EngineContract

MULTI_NODE = ("--nnodes", "--node-rank", "--master-addr", "--master-port")


class TestVllm(EngineContract):
    engine = "vllm"
    # Replicas whose tensor and pipeline ranks span nodes need 0.11.2; earlier versions had that through Ray only.
    gaps = {"0.9.2": MULTI_NODE, "0.10.2": MULTI_NODE}  # noqa: RUF012 - declared ClassVar by the suite
