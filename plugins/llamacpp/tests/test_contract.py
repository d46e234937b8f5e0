from llmgw_core.testing import EngineContract


class TestLlamacpp(EngineContract):
    engine = "llamacpp"
