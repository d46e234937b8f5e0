"""llmgw's engine plugin for SGLang."""
