"""The environment by which NCCL and Gloo take exactly a shard's own adapters and interface.

For engines on PyTorch. In: a shard.  Out: environment variables; none for a replica of one node.  Pure.
"""

from __future__ import annotations

from llmgw_core.model.replica import Shard


def group_env(shard: Shard) -> dict[str, str]:
    """NCCL matches names by their beginning (`mlx5_1` is `mlx5_10` too) unless the value begins with `=`.

    Source: NCCL's documentation of NCCL_IB_HCA and NCCL_SOCKET_IFNAME. Gloo takes interface names as they are
    (PyTorch splits GLOO_SOCKET_IFNAME at commas and opens each).
    """
    slot = shard.slot
    env: dict[str, str] = {}
    if shard.replica.nodes == 1:
        return env
    if slot.hcas:
        env["NCCL_IB_HCA"] = "=" + ",".join(map(str, slot.hcas))
    if slot.interface:
        env["NCCL_SOCKET_IFNAME"] = f"={slot.interface}"
        env["GLOO_SOCKET_IFNAME"] = slot.interface
    return env
