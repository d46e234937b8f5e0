"""llmgw's engine plugin for the simulated engine."""
