"""A certificate at two thirds of its life is renewed over the live link, where the authority is reachable."""

import json
import re
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from llmgw_core.model.identity import Identity, Role
from llmgw_core.pki.certificate import Order, serial_text
from llmgw_core.pki.delivery import Delivery, prepare_delivery, write_delivery
from llmgw_core.pki.files import read_pair
from llmgw_core.pki.names import parse_names
from llmgw_core.testing.cluster import LLMGW, Cluster, running_cluster, wait_until

OLD_DAYS = 70
LIFE_DAYS = 90


def issue_days_ago(cluster: Cluster, days: int, identity: Identity, ips: tuple[str, ...] = ()) -> str:
    """In the place of the one that is there; its serial."""
    made = datetime.now(UTC) - timedelta(days=days)  # noqa: TID251 - the processes judge it by the real clock
    delivery = Delivery(cluster.pki, identity.name)
    prepare_delivery(delivery, cluster.authority, force=True)
    issued = cluster.authority.issue(Order(identity, parse_names((), ips), LIFE_DAYS), made)
    write_delivery(delivery, cluster.authority, issued, force=True)
    return serial_text(issued.certificate)


def issue_old(cluster: Cluster, name: str) -> str:
    """A node's certificate that is past two thirds of its life; its serial."""
    return issue_days_ago(cluster, OLD_DAYS, Identity(Role.NODE, name))


def issue_control(cluster: Cluster, days_ago: int) -> str:
    return issue_days_ago(cluster, days_ago, Identity(Role.SERVER, "control"), (cluster.host,))


def served(cluster: Cluster) -> str:
    """The serial that the control plane shows to who connects now."""
    pem = ssl.get_server_certificate((cluster.host, cluster.port))
    return serial_text(x509.load_pem_x509_certificate(pem.encode()))


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
        cluster.wait_for_state("gpu1", "online")
        assert any("certificate ends in" in trouble for trouble in cluster.nodes()["gpu1"]["troubles"])


def test_the_control_plane_renews_its_own_and_shows_it_to_who_comes_next(tmp_path: Path) -> None:
    with running_cluster(tmp_path, born_days_ago=100) as cluster:
        old = issue_control(cluster, OLD_DAYS)
        control = cluster.start_control("--ca-dir", str(tmp_path / "ca"))
        control.wait_for("certificate renewed")
        assert served(cluster) == serial(cluster, "control") != old
        (event,) = wait_until(lambda: cluster.events("certificate renewed"), "it is told")  # it is logged before
        assert event["reason"].startswith("the control plane's own: it is good until ")


def test_without_an_authority_its_end_is_told_and_new_files_are_read_without_a_restart(tmp_path: Path) -> None:
    with running_cluster(tmp_path, born_days_ago=100) as cluster:
        old = issue_control(cluster, OLD_DAYS)
        control = cluster.start_control()
        assert "put the new files here" in control.wait_for("certificate not renewed")
        (event,) = wait_until(lambda: cluster.events("certificate ends"), "it is told")  # it is logged before
        assert re.match(
            r"the control plane's own certificate ends in \d+ days, .*renew it soon, or nobody", event["reason"]
        )
        assert served(cluster) == old
        new = issue_control(cluster, 0)
        control.wait_for("certificate read anew")
        assert served(cluster) == new
        (cluster.pki / "control.crt").write_text("no certificate\n")
        control.wait_for("the old certificate is used on")
        assert served(cluster) == new


def test_an_operator_is_told_once_that_their_certificate_ends_and_of_the_way_out(tmp_path: Path) -> None:
    with running_cluster(tmp_path, born_days_ago=100) as cluster:
        cluster.start_control()
        issue_days_ago(cluster, OLD_DAYS, Identity(Role.OPERATOR, "bob"))
        where = ("--server", str(cluster.server), "--identity", str(cluster.pki / "bob"))
        done = subprocess.run([LLMGW, "ctl", *where, "models", "--json"], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == []
        (line,) = done.stderr.splitlines()
        assert line.startswith("llmgw: warning: your certificate ends in ")
        assert "`llmgw ca renew bob --role operator`" in line
