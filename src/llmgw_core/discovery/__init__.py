"""What a node has: its GPUs, its InfiniBand ports and its engines, as they say themselves.

Reading is apart from parsing: `nvidia_smi` and `ib_port` are pure, the others touch the node.
"""
