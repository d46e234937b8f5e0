"""The process on a node: says what the node is, and does what the control plane decides. It decides nothing."""
