"""In which order the files of tests begin: the longest first, so that none of them runs alone at the end.

A file is given to one process as a whole (`--dist loadfile`), in this order (`--no-loadscope-reorder`). A file that is
not named here comes later, as it was collected; a name that no file has any more costs nothing.
"""

from __future__ import annotations

import pytest

LONGEST = (
    "tests/e2e/test_bad_days.py",
    "tests/e2e/test_drain.py",
    "tests/e2e/test_replica_lost_nodes.py",
    "tests/e2e/test_gateway_outage.py",
    "tests/e2e/test_gateway_drain.py",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_replica_bad_nodes.py",
    "tests/e2e/test_replicas.py",
    "tests/e2e/test_drain_losses.py",
    "tests/engines/test_llama_gateway.py",
    "tests/e2e/test_replica_bad_days.py",
    "tests/e2e/test_replica_faults.py",
    "tests/e2e/test_shards.py",
    "tests/engines/test_llama_replicas.py",
    "tests/e2e/test_gateway_ends.py",
    "tests/e2e/test_shards_adopted.py",
    "tests/e2e/test_hard_agents.py",
    "tests/wheels/test_wheels.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {path: place for place, path in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.relative_to(config.rootpath).as_posix(), len(LONGEST)))
