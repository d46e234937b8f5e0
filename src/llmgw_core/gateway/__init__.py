"""The gateway: one OpenAI-compatible address in front of all ready replicas."""
