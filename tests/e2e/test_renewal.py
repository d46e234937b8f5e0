"""A certificate at two thirds of its life is renewed over the live link, where the authority is reachable."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.certificate import Order, serial_text
from llmgw_core.pki.delivery import Delivery, prepare_delivery, write_delivery
from llmgw_core.pki.files import read_pair
from llmgw_core.testing.cluster import Cluster, running_cluster, wait_until

OLD_DAYS = 70
LIFE_DAYS = 90


def issue_old(cluster: Cluster, name: str) -> str:
    """A node's certificate that is past two thirds of its life; its serial."""
    made = datetime.now(UTC) - timedelta(days=OLD_DAYS)  # noqa: TID251 - the processes judge it by the real clock
    delivery = Delivery(cluster.pki, name)
    prepare_delivery(delivery, cluster.authority, force=False)
    issued = cluster.authority.issue(Order(Identity(Role.NODE, name), life_days=LIFE_DAYS), made)
    write_delivery(delivery, cluster.authority, issued, force=False)
    return serial_text(issued.certificate)


def serial(cluster: Cluster, name: str) -> str:
    return serial_text(read_pair(cluster.pki / f"{name}.crt", cluster.pki / f"{name}.key").certificate)


def test_it_is_renewed_and_the_node_calls_again_with_it(tmp_path: Path) -> None:
    with running_cluster(tmp_path, born_days_ago=100) as cluster:
        old = issue_old(cluster, "gpu1")
        cluster.start_control("--ca-dir", str(tmp_path / "ca"))
        agent = cluster.start_agent("gpu1")
        agent.wait_for("certificate renewed")
        wait_until(lambda: cluster.nodes()["gpu1"]["days_left"] >= LIFE_DAYS - 1, "the new certificate is in use")
        cluster.wait_for_state("gpu1", "online")
        assert serial(cluster, "gpu1") != old


@pytest.mark.parametrize("reason", ["the authority is not on the control plane's machine"])
def test_without_an_authority_it_is_said_and_the_old_one_goes_on(tmp_path: Path, reason: str) -> None:
    with running_cluster(tmp_path, born_days_ago=100) as cluster:
        old = issue_old(cluster, "gpu1")
        cluster.start_control()
        agent = cluster.start_agent("gpu1")
        assert reason in agent.wait_for("certificate not renewed")
        agent.wait_for("certificate ends in")
        assert serial(cluster, "gpu1") == old
        node = cluster.nodes()["gpu1"]
        assert node["state"] == "online"
        assert any("certificate ends in" in trouble for trouble in node["troubles"])
