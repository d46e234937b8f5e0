from llmgw_core.testing import EngineContract


class TestSim(EngineContract):
    engine = "sim"
