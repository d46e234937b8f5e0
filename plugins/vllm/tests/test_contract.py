from llmgw_core.testing import EngineContract


class TestvLLM(EngineContract):
    engine = "vllm"
