"""What tests of llmgw and of its plugins share. Imported by tests only; needs pytest."""
