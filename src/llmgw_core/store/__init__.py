"""What the control plane remembers: SQLite, one transaction for each call, synchronous."""
