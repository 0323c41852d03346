"""An index refreshed by Ray actors equals one that is built in the training process, whatever is killed."""

import gc
import itertools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, wait_for

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from index.refresh import IndexRefresher, open_blocking_refresher, open_ray_refresher  # noqa: E402
from ragqa import artefacts  # noqa: E402
from ragqa.errors import RefreshFailed  # noqa: E402
from tests.helpers.refresh import (  # noqa: E402
    PASSAGES,
    SETTINGS,
    Tower,
    kill_before_the_swap,
    list_names,
    read_vectors,
    write_corpus,
)
from tests.helpers.refresh_actors import (  # noqa: E402
    get_actors,
    get_directory,
    make_hanging_patch,
    make_recording_patch,
    make_swap_condition,
    run_in_actor,
)

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    """Start Ray for all tests of this file."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        ray.init(address="local", num_cpus=4, **quiet)  # never a cluster that already runs here
        yield ray
        ray.shutdown()
    gc.collect()  # sockets that Ray leaves open are found here, and not in another test


@pytest.fixture(scope="module")
def ray_refresher(
    ray, random_corpus: Path, tower, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IndexRefresher]:
    """Open a refresher with two actors, and build version 0 without a kill."""
    work = tmp_path_factory.mktemp("refreshed")
    refresher = open_ray_refresher(random_corpus, work, SETTINGS, workers=2)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


@pytest.fixture(scope="module")
def expected_vectors(ray_refresher: IndexRefresher) -> bytes:
    """Return the vectors of version 0."""
    return read_vectors(get_directory(ray_refresher), 0)


def test_ray_builds_the_same_version_as_the_blocking_refresher(
    ray_refresher, random_corpus: Path, tmp_path: Path, tower
) -> None:
    blocking = open_blocking_refresher(random_corpus, tmp_path, SETTINGS)
    blocking.refresh(tower(0), 0)
    index = blocking.poll(0)
    blocking.close()
    version_folder = get_directory(ray_refresher) / "index-00000000"
    assert np.allclose(np.load(version_folder / "vectors.npy"), np.asarray(index.vectors[0:PASSAGES]), atol=2e-3)
    assert (
        artefacts.read_manifest(version_folder, "dense").parents
        == artefacts.peek_manifest(tmp_path / "index-00000000").parents
    )


MOMENTS = {
    "embedding": ("index.version_build", "embed_shard", 2, False),
    "building": ("ragqa.retrieval.vectors.mips", "build", 0, False),
    "renaming": ("ragqa.artefacts", "swap_into_place", 0, False),
    "after renaming": ("ragqa.artefacts", "swap_into_place", 0, True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_actors_change_no_byte(
    moment: str, ray, ray_refresher, expected_vectors: bytes, tmp_path: Path, tower
) -> None:
    work, mark, record_file = get_directory(ray_refresher), tmp_path / "mark", tmp_path / "rows"
    last = ray_refresher.version
    step = last + 10
    coordinator, encoders = get_actors(ray_refresher)
    module, name, calls, after = MOMENTS[moment]
    waits_for_mark = mark if moment == "embedding" else None  # so that the first actor gets its third shard and hangs
    for encoder, waits_for in zip(encoders, (None, waits_for_mark), strict=True):
        run_in_actor(ray, encoder, make_recording_patch(record_file, waits_for=waits_for))
    hanging_actor = encoders[0] if moment == "embedding" else coordinator
    pids = {run_in_actor(ray, hanging_actor, make_hanging_patch(module, name, mark, calls, after=after))}
    pids.add(run_in_actor(ray, coordinator, lambda _: os.getpid()))
    ray_refresher.refresh(tower(0), step)
    wait_for(mark.exists)
    shards = 7 if moment == "embedding" else 8
    wait_for(lambda: ray_refresher._versions.count_whole_shards(step) == shards)
    old = ray_refresher.poll(step + 1)
    assert ray_refresher.version == last
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(make_swap_condition(ray_refresher, step + 2, step))
    assert ray_refresher.poll(step + 3) is not old
    assert read_vectors(work, step) == expected_vectors
    recorded_rows = record_file.read_text().split()
    assert len(recorded_rows) == len({*recorded_rows})  # whole shards were not embedded again
    assert list_names(work) == [f"{what}-{version:08d}" for what in ("index", "snapshot") for version in (last, step)]


def test_repeated_failures_are_reported(ray, ray_refresher, expected_vectors: bytes, tmp_path: Path, tower) -> None:
    class IncompleteTower:
        def save(self, folder: Path) -> None:
            tower(1).model.save_pretrained(folder)

    last = ray_refresher.version
    old = ray_refresher.poll(last)
    ray_refresher.refresh(IncompleteTower(), last + 1)
    with pytest.raises(RefreshFailed, match=f"weights of step {last + 1}: .*tokenizer.json"):
        wait_for(make_swap_condition(ray_refresher, last + 2, last + 1))
    for encoder in get_actors(ray_refresher)[1]:
        run_in_actor(ray, encoder, make_recording_patch(tmp_path / "made", "No space left on device"))
    ray_refresher.refresh(tower(0), last + 3)
    with pytest.raises(RefreshFailed, match=f"weights of step {last + 3}: .*No space left on device"):
        wait_for(make_swap_condition(ray_refresher, last + 4, last + 3))
    assert ray_refresher.poll(last + 5) is old and ray_refresher.version == last
    for encoder in get_actors(ray_refresher)[1]:
        run_in_actor(ray, encoder, make_recording_patch(tmp_path / "made"))
    ray_refresher.refresh(tower(0), last + 10)
    wait_for(make_swap_condition(ray_refresher, last + 11, last + 10))
    assert read_vectors(get_directory(ray_refresher), last + 10) == expected_vectors


@pytest.mark.slow
def test_training_killed_on_ray_resumes_the_same_versions(
    ray, random_corpus: Path, tmp_path: Path, small: Path, expected_vectors: bytes
) -> None:
    """Kill once between rename and swap, and once with all actors while a shard is embedded."""
    work, address = tmp_path / "work", ray.get_runtime_context().gcs_address
    kill_before_the_swap(random_corpus, work, small, function="open_ray_refresher", address=address)
    resumed_once = open_ray_refresher(random_corpus, work, SETTINGS)
    assert (
        resumed_once.version == 5
        and len(resumed_once.poll(6)) == PASSAGES
        and read_vectors(work, 5) == expected_vectors
    )
    record_file, encoder = tmp_path / "made", get_actors(resumed_once)[1][0]
    run_in_actor(ray, encoder, make_recording_patch(record_file))
    run_in_actor(ray, encoder, make_hanging_patch("index.version_build", "embed_shard", tmp_path / "mark", 3))
    resumed_once.refresh(Tower(small, 0), 10)
    wait_for((tmp_path / "mark").exists)
    resumed_once.close()
    recorded_rows = record_file.read_text().split()
    resumed = open_ray_refresher(random_corpus, work, replace(SETTINGS, max_staleness=3))
    run_in_actor(ray, get_actors(resumed)[1][0], make_recording_patch(record_file))
    resumed.poll(11)  # waits: the index is 6 steps old
    assert resumed.version == 10 and read_vectors(work, 10) == expected_vectors
    assert recorded_rows == ["0", "40", "80"] and not {*recorded_rows} & {*record_file.read_text().split()[3:]}
    resumed.close()


def kill_at_random(ray, refresher: IndexRefresher, model: Tower, rng: np.random.Generator) -> None:
    """Kill some of the actors after some of the shards."""
    step, versions = refresher.version + 1, refresher._versions
    coordinator, encoders = get_actors(refresher)
    pids = [run_in_actor(ray, actor, lambda _: os.getpid()) for actor in (coordinator, *encoders)]
    refresher.refresh(model, step)
    after = int(rng.integers(9))
    wait_for(lambda: versions.count_whole_shards(step) >= after or step in versions.list_steps("index"))
    for pid in rng.choice(pids, int(rng.integers(1, 4)), replace=False):
        os.kill(int(pid), signal.SIGKILL)
    wait_for(make_swap_condition(refresher, step, step))


@pytest.mark.slow
def test_actors_killed_at_twenty_random_moments_change_no_byte(
    ray, ray_refresher, expected_vectors: bytes, tower
) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        kill_at_random(ray, ray_refresher, tower(0), rng)
        assert read_vectors(get_directory(ray_refresher), ray_refresher.version) == expected_vectors


def train(refresher: IndexRefresher, model: Tower, swaps: int) -> float:
    """Train 50 steps without a refresh, then with refreshes until ``swaps``; return the seconds with refreshes."""
    optimizer = torch.optim.SGD(model.model.parameters(), lr=1e-4)
    texts = torch.randint(5, 1100, (64, 32), generator=torch.Generator().manual_seed(0))
    before, began = len(refresher.log), 0.0
    for step in itertools.count(1):
        newer = len(refresher.log) - before
        index = refresher.poll(step)
        if newer == swaps:
            return time.perf_counter() - began
        if step == 50:
            began = time.perf_counter()
        if step == 50 or len(refresher.log) - before > newer:
            refresher.refresh(model, step)
        queries = model.model(texts).last_hidden_state.mean(1)
        index.search(queries[:8].detach().numpy(), 5)
        queries.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.slow
def test_training_stands_still_for_less_than_two_percent_of_the_time(ray, tmp_path: Path, tower) -> None:
    """Refreshes run on the same cores all the time."""
    corpus = write_corpus(tmp_path / "corpus", passages=12_000)
    refresher = open_ray_refresher(corpus, tmp_path / "work")
    model = tower(0)
    refresher.refresh(model, 0)
    refresher.poll(0)
    seconds = train(refresher, model, swaps=3)
    swaps = refresher.log[1:]
    refresher.close()
    assert len(swaps) == 3 and all(swap.staleness > 0 and swap.slowdown is not None for swap in swaps)
    assert sum(swap.paused for swap in swaps) < 0.02 * seconds, (swaps, seconds)
