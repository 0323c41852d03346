"""A machine of the cluster is lost while an index is made beside training."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

pytest.importorskip("torch", reason="the extra torch is not installed")
ray = pytest.importorskip("ray", reason="the extra ray is not installed")

from test_refresh import ROWS, Tower, actors, hanging, in_actor, swapped, vectors, wait_for, write_corpus  # noqa: E402

from index.refresh import RayRefresher  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def cluster() -> Iterator["ray.cluster_utils.Cluster"]:
    """A head and two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    soon = {"initial_delay_ms": 1000, "period_ms": 300, "failure_threshold": 3}  # a lost node is missed at once
    system = {f"health_check_{name}": value for name, value in soon.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": system}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
            ray.init(address=made.address, log_to_driver=False, configure_logging=False)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
            del made
            gc.collect()  # sockets that Ray leaves open are found here, and not in another test


@pytest.mark.slow
def test_a_node_removed_in_the_middle(cluster, small: Path, tmp_path: Path) -> None:
    corpus, work, mark = write_corpus(tmp_path / "corpus"), tmp_path / "work", tmp_path / "mark"
    refresher = RayRefresher(corpus, work, max_staleness=None, workers=2, shard_rows=ROWS)
    refresher.refresh(Tower(small), 0)
    refresher.poll(0)
    encoder = actors(refresher)[1][0]
    home = in_actor(ray, encoder, lambda _: __import__("ray").get_runtime_context().get_node_id())
    in_actor(ray, encoder, hanging("index.making", "embed_shard", mark, 1))
    refresher.refresh(Tower(small), 1)
    wait_for(mark.exists)
    lost = next(node for node in cluster.workers if node.node_id == home)
    cluster.remove_node(lost, allow_graceful=False)
    wait_for(swapped(refresher, 1, 1), 300)  # the other node makes the rest: there is no place for a second actor
    assert vectors(work, 1) == vectors(work, 0)
    refresher.close()
