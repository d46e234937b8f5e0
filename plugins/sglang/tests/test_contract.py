from llmgw_core.testing import EngineContract


class TestSglang(EngineContract):
    engine = "sglang"
