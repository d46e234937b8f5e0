"""Where a model's weights are, as an operator sees it, while a copy comes and goes."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from llmgw_core.testing.cluster import Cluster, running_cluster, wait_until
from llmgw_core.testing.sim_model import sim_model


def rows(cluster: Cluster) -> dict[str, tuple[str, str]]:
    told = json.loads(cluster.ctl("weights", "m", "--json"))
    return {each["node"]: (each["weights"], each["reason"]) for each in told["nodes"]}


def test_an_operator_sees_on_each_node_whether_a_copy_is_whole(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    with running_cluster(tmp_path) as cluster:
        cluster.start_control()
        cluster.start_agent("n1", gpus=1)
        wait_until(lambda: len(cluster.nodes()) == 1, "the node")
        text = sim_model("m", source=str(weights), replicas=0)
        cluster.apply(text)
        wait_until(lambda: rows(cluster) == {"n1": ("whole", "")}, "the answer")
        stated = {"llmgw_manifest": 1, "files": {"model.safetensors": {"bytes": 4_976_698_592, "sha256": "a" * 64}}}
        (weights / "llmgw-manifest.json").write_text(json.dumps(stated))
        cluster.apply(text)  # looked at again at once, and not within the half minute
        said = f"{weights}: llmgw-manifest.json: model.safetensors has 10 bytes, expected 4,976,698,592"
        wait_until(lambda: rows(cluster) == {"n1": ("not whole", said)}, "what the manifest says")
        assert cluster.ctl("weights", "m").splitlines()[0] == f"m: {weights}"
        assert f"n1    online  not whole  {said}" in cluster.ctl("weights", "m")
        cluster.apply(sim_model("m", source="org/name", replicas=0))
        wait_until(lambda: rows(cluster)["n1"][0] == "fetched", "a hub's name is nobody's to look at")
