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
from tests.helpers.refresh_actors import actors, directory, hanging, in_actor, recording, swapped  # noqa: E402

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
        ray.init(address="local", num_cpus=4, **quiet)  # not a cluster that happens to run here
        yield ray
        ray.shutdown()
    gc.collect()  # sockets that Ray leaves open are found here, and not in another test


@pytest.fixture(scope="module")
def ray_refresher(
    ray, random_corpus: Path, tower, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IndexRefresher]:
    """Open a refresher with two actors, and build version 0 undisturbed."""
    work = tmp_path_factory.mktemp("refreshed")
    refresher = open_ray_refresher(random_corpus, work, SETTINGS, workers=2)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


@pytest.fixture(scope="module")
def undisturbed(ray_refresher: IndexRefresher) -> bytes:
    """Return the vectors of that version."""
    return read_vectors(directory(ray_refresher), 0)


def test_ray_builds_the_same_version_as_the_blocking_refresher(
    ray_refresher, random_corpus: Path, tmp_path: Path, tower
) -> None:
    blocking = open_blocking_refresher(random_corpus, tmp_path, SETTINGS)
    blocking.refresh(tower(0), 0)
    index = blocking.poll(0)
    blocking.close()
    made = directory(ray_refresher) / "index-00000000"
    assert np.allclose(np.load(made / "vectors.npy"), np.asarray(index.vectors[0:PASSAGES]), atol=2e-3)
    assert (
        artefacts.read_manifest(made, "dense").parents == artefacts.peek_manifest(tmp_path / "index-00000000").parents
    )


MOMENTS = {
    "embedding": ("index.version_build", "embed_shard", 2, False),
    "building": ("ragqa.retrieval.vectors.mips", "build", 0, False),
    "renaming": ("ragqa.artefacts", "swap_into_place", 0, False),
    "renamed": ("ragqa.artefacts", "swap_into_place", 0, True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_actors_change_no_byte(
    moment: str, ray, ray_refresher, undisturbed: bytes, tmp_path: Path, tower
) -> None:
    work, mark, made = directory(ray_refresher), tmp_path / "mark", tmp_path / "made"
    last = ray_refresher.version
    step = last + 10
    coordinator, encoders = actors(ray_refresher)
    module, name, calls, after = MOMENTS[moment]
    waits_for_mark = mark if moment == "embedding" else None  # so that the other actor gets its third shard and hangs
    for encoder, waits_for in zip(encoders, (None, waits_for_mark), strict=True):
        in_actor(ray, encoder, recording(made, waits_for=waits_for))
    hangs = encoders[0] if moment == "embedding" else coordinator
    pids = {in_actor(ray, hangs, hanging(module, name, mark, calls, after=after))}
    pids.add(in_actor(ray, coordinator, lambda _: os.getpid()))
    ray_refresher.refresh(tower(0), step)
    wait_for(mark.exists)
    shards = 7 if moment == "embedding" else 8
    wait_for(lambda: ray_refresher._versions.count_whole_shards(step) == shards)
    old = ray_refresher.poll(step + 1)
    assert ray_refresher.version == last
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(swapped(ray_refresher, step + 2, step))
    assert ray_refresher.poll(step + 3) is not old
    assert read_vectors(work, step) == undisturbed
    noted = made.read_text().split()
    assert len(noted) == len({*noted})  # whole shards were not embedded again
    assert list_names(work) == [f"{what}-{kept:08d}" for what in ("index", "snapshot") for kept in (last, step)]


def test_repeated_failures_are_reported(ray, ray_refresher, undisturbed: bytes, tmp_path: Path, tower) -> None:
    class Incomplete:
        def save(self, folder: Path) -> None:
            tower(1).model.save_pretrained(folder)

    last = ray_refresher.version
    old = ray_refresher.poll(last)
    ray_refresher.refresh(Incomplete(), last + 1)
    with pytest.raises(RefreshFailed, match=f"weights of step {last + 1}: .*tokenizer.json"):
        wait_for(swapped(ray_refresher, last + 2, last + 1))
    for encoder in actors(ray_refresher)[1]:
        in_actor(ray, encoder, recording(tmp_path / "made", "No space left on device"))
    ray_refresher.refresh(tower(0), last + 3)
    with pytest.raises(RefreshFailed, match=f"weights of step {last + 3}: .*No space left on device"):
        wait_for(swapped(ray_refresher, last + 4, last + 3))
    assert ray_refresher.poll(last + 5) is old and ray_refresher.version == last
    for encoder in actors(ray_refresher)[1]:
        in_actor(ray, encoder, recording(tmp_path / "made"))
    ray_refresher.refresh(tower(0), last + 10)
    wait_for(swapped(ray_refresher, last + 11, last + 10))
    assert read_vectors(directory(ray_refresher), last + 10) == undisturbed


@pytest.mark.slow
def test_training_killed_on_ray_resumes_the_same_versions(
    ray, random_corpus: Path, tmp_path: Path, small: Path, undisturbed: bytes
) -> None:
    """Kill once between rename and swap, and once with all actors while a shard is embedded."""
    work, address = tmp_path / "work", ray.get_runtime_context().gcs_address
    kill_before_the_swap(random_corpus, work, small, function="open_ray_refresher", address=address)
    again = open_ray_refresher(random_corpus, work, SETTINGS)
    assert again.version == 5 and len(again.poll(6)) == PASSAGES and read_vectors(work, 5) == undisturbed
    made, encoder = tmp_path / "made", actors(again)[1][0]
    in_actor(ray, encoder, recording(made))
    in_actor(ray, encoder, hanging("index.version_build", "embed_shard", tmp_path / "mark", 3))
    again.refresh(Tower(small, 0), 10)
    wait_for((tmp_path / "mark").exists)
    again.close()
    noted = made.read_text().split()
    resumed = open_ray_refresher(random_corpus, work, replace(SETTINGS, max_staleness=3))
    in_actor(ray, actors(resumed)[1][0], recording(made))
    resumed.poll(11)  # waits: the index is 6 steps old
    assert resumed.version == 10 and read_vectors(work, 10) == undisturbed
    assert noted == ["0", "40", "80"] and not {*noted} & {*made.read_text().split()[3:]}
    resumed.close()


def kill_at_random(ray, refresher: IndexRefresher, model: Tower, rng: np.random.Generator) -> None:
    """Kill some of the actors after some of the shards."""
    step, versions = refresher.version + 1, refresher._versions
    coordinator, encoders = actors(refresher)
    pids = [in_actor(ray, actor, lambda _: os.getpid()) for actor in (coordinator, *encoders)]
    refresher.refresh(model, step)
    after = int(rng.integers(9))
    wait_for(lambda: versions.count_whole_shards(step) >= after or step in versions.list_steps("index"))
    for pid in rng.choice(pids, int(rng.integers(1, 4)), replace=False):
        os.kill(int(pid), signal.SIGKILL)
    wait_for(swapped(refresher, step, step))


@pytest.mark.slow
def test_actors_killed_at_twenty_random_moments_change_no_byte(ray, ray_refresher, undisturbed: bytes, tower) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        kill_at_random(ray, ray_refresher, tower(0), rng)
        assert read_vectors(directory(ray_refresher), ray_refresher.version) == undisturbed


def train(refresher: IndexRefresher, model: Tower, swaps: int) -> float:
    """Train first without and then always with a refresh under way; return the seconds with one."""
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
def test_training_hardly_stands_still_during_refreshes(ray, tmp_path: Path, tower) -> None:
    """It stands still for less than 2 % of the time, with refreshes on the same cores all the time."""
    corpus = write_corpus(tmp_path / "corpus", passages=12_000)
    refresher = open_ray_refresher(corpus, tmp_path / "work")
    model = tower(0)
    refresher.refresh(model, 0)
    refresher.poll(0)
    seconds = train(refresher, model, swaps=3)
    swaps = refresher.log[1:]
    refresher.close()
    assert len(swaps) == 3 and all(swap.staleness > 0 and swap.slowdown is not None for swap in swaps)
    assert sum(swap.stood for swap in swaps) < 0.02 * seconds, (swaps, seconds)
