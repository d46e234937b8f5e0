"""llmgw's engine plugin for llama.cpp."""
