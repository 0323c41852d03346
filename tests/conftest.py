"""Fixtures of all tests, and an environment without network and without the user's files."""

import gc
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before any import, because some libraries read it only once."""
    cache = tempfile.TemporaryDirectory(prefix="ragqa-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["OMP_NUM_THREADS"] = "1"  # more threads only cost time for tensors this small
    os.environ["XDG_CACHE_HOME"] = cache.name
    # Ray reads these at its import: closed to the network, and with a token that is not kept in a file
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32}
    hypothesis.settings.register_profile("ragqa", deadline=None)  # the time of an example depends on other programs
    hypothesis.settings.load_profile("ragqa")


STARTS_RAY = {"cluster", "ray", "ray_cluster", "three_cores"}
"""Names of fixtures that start Ray."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start Ray as thorough, because a cluster takes longer than most tests."""
    for item in items:
        if STARTS_RAY & set(getattr(item, "fixturenames", ())):
            item.add_marker("thorough")


@pytest.fixture(autouse=True)
def without_check_of_tyro(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under pytest, tyro checks a random tenth of its cached types; it takes a member of a StrEnum for an equal str."""
    monkeypatch.setattr(random, "random", lambda: 0.5)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets: $RAGQA_SHARED_DATA, or ../shared/data next to the checkout."""
    folder = Path(os.environ.get("RAGQA_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}: set RAGQA_SHARED_DATA to their folder")
    return folder


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make matplotlib unavailable: plots take a second per report."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a log without the figures that differ between equal runs."""
    return {name: value for name, value in row.items() if name not in ("seconds", "tokens/s", "utilisation")}


def interrupt(main: Callable[..., object], config: Any, *steps: int) -> None:
    """Run a recipe and interrupt it before a step; repeat that for the other steps, each as in a process of its own."""
    from pipelines.common.run import Run
    from ragqa.training.meter import measure_peak_flops

    begin_step = Run.begin_step
    for step in steps:

        def stop(run: Run, step: int = step) -> None:
            if run.step == step:
                raise KeyboardInterrupt
            begin_step(run)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Run, "begin_step", stop)
            main(config)
        measure_peak_flops.cache_clear()


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"w{i}" for i in range(1100)]]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a BERT of two narrow layers with random weights in the format of transformers."""
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel

    path = tmp_path_factory.mktemp("small")
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(path)
    return path


DOCUMENTS = {
    "lighthouse.md": "# Skarvik Lighthouse\n\nSkarvik Lighthouse was built in 1871 by the engineer Ada Holm. "
    "The lighthouse is 34 metres tall and stands on the island of Brenna.\n",
    "bakery.txt": "The bakery on Mill Street was founded by Otto Brandt in 1923. It is known for rye bread.\n",
    "comet.html": "<html><head><title>Comet Varga</title></head><body><p>Comet Varga was discovered by Ilona "
    "Varga in Szeged in 1956.</p><script>alert('no')</script></body></html>",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder of three documents in three formats, and a picture that no reader takes."""
    path = tmp_path_factory.mktemp("documents")
    for name, text in DOCUMENTS.items():
        (path / name).write_text(text)
    (path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00" * 20)
    return path


@pytest.fixture(scope="session")
def index(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an index of the folder of documents."""
    out = tmp_path_factory.mktemp("indexes") / "documents.index"
    from ragqa.indexing.build import build_index

    build_index([folder], out)
    return out


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run the command in this process; return its exit status, stdout and stderr."""
    from ragqa.cli import main

    before, sys.argv = sys.argv, ["ragqa", *arguments]
    try:
        with pytest.raises(SystemExit) as stop:
            main.main()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return int(stop.value.code or 0), printed.out, printed.err


def make_index(folder: Path, words: list[str], encoder: str, retriever: str, count: int = 400) -> Path:
    """Build an index of random passages of 5 to 40 words."""
    from ragqa.indexing.build import IndexConfig, build_index

    rng = np.random.default_rng(0)
    with (folder / "c.jsonl").open("w") as file:
        for number, length in enumerate(rng.integers(5, 40, count)):
            text = " ".join(rng.choice(words, length))
            file.write(json.dumps({"id": str(number), "title": f"t{number}", "text": text}) + "\n")
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever=retriever, encoder=encoder))
    return folder / "c.index"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an index with passages and vectors on one machine."""
    words = ["stone", "river", "light", "king", "city", "tower"]
    return make_index(tmp_path_factory.mktemp("corpus"), words, "default", "dense")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a Ray cluster: a head and two nodes of one CPU each."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        soon = {"initial_delay_ms": 1000, "period_ms": 300, "failure_threshold": 3}  # a lost node is noticed at once
        system = {f"health_check_{name}": value for name, value in soon.items()}
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": system}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                made.add_node(num_cpus=1)
            patch.setenv("RAY_ADDRESS", made.address)
            ray.init(log_to_driver=False, configure_logging=False)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
            del made
            gc.collect()  # sockets that Ray leaves open raise their warning here and not in another test


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Return the value of ``condition`` once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


class Killed(BaseException):
    """Stand-in for SIGKILL that leaves the test process alive."""


def kill_at_every_step(
    patch: pytest.MonkeyPatch,
    work: Callable[[], Any],
    check: Callable[[int, bool], bool],
    restore: Callable[[], Any],
    anew: list[Path],
) -> int:
    """Kill ``work`` once at each moment before, in and after a rename, deletion or small write.

    Args:
        patch: a context that the test undoes.
        work: the function to kill and to run again.
        check: gets the moment and its last result; returns whether the new version is in place.
        restore: puts the old version back.
        anew: folders to delete before ``restore``, so that each run starts from the old version; if empty, each
            run continues where the last one was killed.

    Returns:
        The number of moments.
    """
    from ragqa import artefacts

    left = 0
    rmtree = shutil.rmtree

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            tick()
            result = call(*arguments, **options)
            tick()
            return result

        return step

    def half(folder: Path, *arguments: Any, **options: Any) -> None:
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        for file in files[: len(files) // 2]:
            os.unlink(file)
        tick()
        rmtree(folder, *arguments, **options)

    for name in ("rename", "replace", "unlink", "write_text"):
        patch.setattr(Path, name, counted(getattr(Path, name)))
    patch.setattr(shutil, "rmtree", counted(half))
    patch.setattr(artefacts.atomic, "exchange_directories", counted(artefacts.atomic.exchange_directories))
    swapped = False
    for moment in range(1, 400):
        if anew:
            left = 0
            for folder in anew:
                rmtree(folder, ignore_errors=True)
            restore()
            swapped = False
        left, was_killed = moment, False
        try:
            work()
        except Killed:  # leave this block before the next call, because the exception keeps the objects of the old one
            was_killed = True
        left = 0
        if not was_killed:
            assert check(moment, True)
            return moment
        swapped = check(moment, swapped)
        if anew:
            work()
            assert check(moment, True)
    raise AssertionError("the work never ended")


@pytest.fixture(scope="session")
def random_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an index without vectors over passages of random words."""
    from tests.helpers.refresh import write_corpus

    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread: a tiny model gains nothing from more, and loses much next to other processes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tower(small: Path) -> Callable[[int], Any]:
    """Return a function from a seed to a passage tower."""
    from tests.helpers.refresh import Tower

    return lambda seed: Tower(small, seed)


@pytest.fixture
def training(random_corpus: Path, tmp_path: Path) -> Iterator[Any]:
    """Return a training run whose index a test builds by hand."""
    from tests.helpers.refresh import Run

    training = Run(random_corpus, tmp_path / "work")
    yield training
    training.refresher.close()


@pytest.fixture
def trained(random_corpus: Path, tmp_path: Path, tower: Callable[[int], Any]) -> Iterator[Any]:
    """Open a blocking refresher over ``tmp_path/work`` with version 0."""
    from index.refresh import open_blocking_refresher
    from tests.helpers.refresh import SETTINGS

    refresher = open_blocking_refresher(random_corpus, tmp_path / "work", SETTINGS)
    refresher.refresh(tower(0), 0)
    refresher.poll(0)
    yield refresher
    refresher.close()


@pytest.fixture(scope="session")
def realm_inputs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Write a small closed world with an encoder and a retriever, from which REALM's pretraining starts."""
    from tests.helpers.realm import write_inputs

    return write_inputs(tmp_path_factory.mktemp("realm"))
