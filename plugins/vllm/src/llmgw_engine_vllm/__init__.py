"""llmgw's engine plugin for vLLM."""
