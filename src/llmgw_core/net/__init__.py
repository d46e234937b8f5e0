"""Streams: TLS, and messages over WebSocket."""
