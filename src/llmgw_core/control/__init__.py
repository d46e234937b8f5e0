"""The control plane: the process that decides."""
