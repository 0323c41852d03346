"""An index is finished when a machine of the cluster is lost."""

from pathlib import Path

import pytest
from conftest import wait_for

pytest.importorskip("torch", reason="the extra torch is not installed")
ray = pytest.importorskip("ray", reason="the extra ray is not installed")

from index.refresh import open_ray_refresher  # noqa: E402
from tests.helpers.refresh import SETTINGS, Tower, read_vectors, write_corpus  # noqa: E402
from tests.helpers.refresh_actors import get_actors, make_hanging_patch, make_swap_condition, run_in_actor  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")


@pytest.mark.slow
def test_losing_a_node_changes_no_byte(cluster, small: Path, tmp_path: Path) -> None:
    corpus, work, mark = write_corpus(tmp_path / "corpus"), tmp_path / "work", tmp_path / "mark"
    refresher = open_ray_refresher(corpus, work, SETTINGS, workers=2)
    refresher.refresh(Tower(small), 0)
    refresher.poll(0)
    encoder = get_actors(refresher)[1][0]
    home = run_in_actor(ray, encoder, lambda _: __import__("ray").get_runtime_context().get_node_id())
    run_in_actor(ray, encoder, make_hanging_patch("index.version_build", "embed_shard", mark, 1))
    refresher.refresh(Tower(small), 1)
    wait_for(mark.exists)
    lost = next(node for node in cluster.worker_nodes if node.node_id == home)
    cluster.remove_node(lost, allow_graceful=False)
    # The other node embeds the rest alone, because it has no room for a second actor.
    wait_for(make_swap_condition(refresher, 1, 1), 300)
    assert read_vectors(work, 1) == read_vectors(work, 0)
    refresher.close()
