"""The link between the control plane and its peers, without I/O."""
