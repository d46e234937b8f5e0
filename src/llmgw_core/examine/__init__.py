"""Runs an engine's own harmless commands (help, version, dry run) and reads what they print."""
