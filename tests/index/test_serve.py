"""A collection of shards answers like one index, and partially while a shard is lost."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from index.serve.deploy import ServeConfig, serve_collection
from index.serve.gateway import merge_hits
from index.serve.shard import ShardFailure, ShardHits, ShardReplica
from ragqa.errors import BadInput, RemoteError
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval import registry
from ragqa.retrieval.base import IndexVersion, Ranking, Scoring, get_missing_shards, select_best
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.remote import RemoteRetriever, ServedCollection
from ragqa.types import Hit

SHARDS, DOCUMENTS = 3, 20
WORDS = ["stone", "river", "light", "king", "city", "tower", "bridge", "comet", "bakery", "island", "copper", "glass"]
QUESTIONS = ["Where is the stone bridge?", "Which king built the tower?", "copper and glass from the island"]
DEADLINE = 90


pytestmark = pytest.mark.filterwarnings("ignore:.use_:DeprecationWarning")  # from the first import of Ray Data


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, random = tmp_path_factory.mktemp("corpora"), np.random.default_rng(0)
    files = [folder / f"part-{n}.jsonl" for n in range(SHARDS)]
    for n, file in enumerate(files):
        rows = [
            {"id": f"{n}-{m}", "title": f"t{m}", "text": " ".join(random.choice(WORDS, 30))} for m in range(DOCUMENTS)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


@pytest.fixture(scope="module")
def shards(corpora: list[Path]) -> list[Path]:
    """Build an index of each corpus."""
    return [build_from([file], file.with_suffix(".index")) for file in corpora]


@pytest.fixture(scope="module")
def whole(corpora: list[Path]) -> Path:
    """Build one index of all corpora."""
    return build_from(corpora, corpora[0].with_name("all.index"))


def build_from(files: list[Path], out: Path, **config: str) -> Path:
    build_index(files, out, IndexConfig(**config))
    return out


def search_merged(shards: list[Path], retriever: str, k: int) -> list[list[dict]]:
    """Search the shards in this process and merge their hits."""
    answers = [ShardReplica(str(shard), retriever, None, "cpu")._search(QUESTIONS, k) for shard in shards]
    assert all(isinstance(answer, ShardHits) for answer in answers)
    firsts = np.cumsum([0, *(answer.rows for answer in answers)]).tolist()
    return [
        merge_hits([(first, answer.hits[n]) for first, answer in zip(firsts, answers, strict=False)], k)
        for n in range(len(QUESTIONS))
    ]


def assert_same_hits(hits: list[Hit], others: list[Hit]) -> None:
    """Assert equal passages and scores; sums over another number of rows may differ in the last bit."""
    assert [hit.passage for hit in hits] == [hit.passage for hit in others]
    np.testing.assert_allclose([hit.score for hit in hits], [hit.score for hit in others], rtol=1e-6)


def test_bm25_hits_are_merged_by_score(shards: list[Path]) -> None:
    expected_rows = []
    for number, shard in enumerate(shards):
        for n, hits in enumerate(open_retriever(shard, "bm25").search(QUESTIONS, 7)):
            expected_rows += [(n, -hit.score, number, hit.passage.id + number * DOCUMENTS) for hit in hits]
    expected = [
        [(row, -score) for m, score, _, row in sorted(expected_rows) if m == n][:7] for n in range(len(QUESTIONS))
    ]
    assert [[(hit["id"], hit["score"]) for hit in hits] for hits in search_merged(shards, "bm25", 7)] == expected


def test_a_missing_directory_is_a_failure_and_not_an_exception(tmp_path: Path, shards: list[Path]) -> None:
    path = tmp_path / "s.index"
    shard = ShardReplica(str(path), None, None, "cpu")
    assert shard._search(["stone"], 1) == ShardFailure(f"{path} does not exist")
    shutil.copytree(shards[0], path)
    assert isinstance(shard._search(["stone"], 1), ShardHits)


class Shortest:
    """Ranker of a kind that the tree does not know: it prefers short passages."""

    scoring = Scoring("shortest", engine="len")

    def __init__(self, index: IndexVersion) -> None:
        self.passages = index.passages

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        texts = [passage.text for passage in self.passages.get(range(len(self.passages)))]
        return [select_best(range(len(texts)), [-len(text) for text in texts], k) for _ in questions]


def test_a_new_retriever_kind_is_served_from_its_registry_entry(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = registry._Entry(opener=f"{__name__}:Shortest")
    monkeypatch.setitem(registry._RETRIEVERS, RetrieverKind.BM25, entry)
    answer = ShardReplica(str(shards[0]), RetrieverKind.BM25, None, "cpu")._search(QUESTIONS, 5)
    assert answer.scoring == Shortest.scoring
    lengths = [len(hit["text"]) for hit in answer.hits[0]]
    assert len(lengths) == 5 and lengths == sorted(lengths)


def test_a_port_in_use_is_reported_before_anything_starts(shards: list[Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        config = ServeConfig(shards=tuple(shards), port=there.getsockname()[1])
        with pytest.raises(BadInput, match=r"port \d+ of 127.0.0.1 cannot be listened on \(Address already in use\)"):
            serve_collection(config).__enter__()
    with pytest.raises(BadInput, match="a shard is named twice"):
        serve_collection(ServeConfig(shards=(shards[0], shards[0]))).__enter__()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as there:
        return int(there.getsockname()[1])


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    pytest.importorskip("ray.serve", reason="the extra ray is not installed")
    environment = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    options = {"log_to_driver": False, "configure_logging": False, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=1, runtime_env=environment, **options)
        yield
        ray.shutdown()


class Served:
    """A served collection, and ways to break it."""

    def __init__(self, url: str, shards: list[Path]) -> None:
        self.url, self.shards, self.remote = url, shards, RemoteRetriever(url)

    def search(self, questions: list[str], k: int, lost: tuple[int, ...] = ()) -> list[list[Hit]]:
        """Kill the shards ``lost`` and search until they and no others are missing; a busy machine may delay others."""
        names, found = tuple(self.shards[n].name for n in lost), [[]]

        def search_once() -> bool:
            for n in lost:
                self.kill(n)
            found[:] = self.remote.search(questions, k)
            return all(get_missing_shards(hits) == names for hits in found)

        wait_until(search_once)
        return found

    def collection(self, up: list[bool] | None = None) -> ServedCollection:
        """Describe the collection once these shards are up, by default all."""
        wait_until(lambda: [shard.up for shard in self.remote.fetch_collection().shards] == (up or [True] * SHARDS))
        return self.remote.fetch_collection()

    def kill(self, n: int) -> None:
        """Kill the processes of a shard's replicas."""
        for process in self.processes(n):
            os.kill(process, signal.SIGKILL)

    @staticmethod
    def processes(n: int, root: int | None = None) -> list[int]:
        """Return the processes of a shard's replicas under ``root``, by default this process."""
        listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
        rows = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
        parents = {int(row[0]): int(row[1]) for row in rows}

        def ours(process: int) -> bool:
            return process == (root or os.getpid()) or (process in parents and ours(parents[process]))

        title = f"ray::ServeReplica:ragqa-shard-{n}:ShardReplica"
        return [int(row[0]) for row in rows if row[-1].startswith(title) and ours(int(row[0]))]


@pytest.fixture(scope="module")
def served(cluster: None, shards: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve dense search over copies of the shards."""
    folder = tmp_path_factory.mktemp("served")
    copies = [Path(shutil.copytree(shard, folder / shard.name)) for shard in shards]
    with serve_collection(ServeConfig(shards=tuple(copies), port=free_port(), retriever="dense")) as url:
        yield Served(url, copies)


@pytest.fixture
def healthy(served: Served) -> Served:
    """Wait until all shards answer."""
    served.search(QUESTIONS[:1], 1)
    return served


def test_merged_hits_equal_those_of_one_index(healthy: Served, whole: Path) -> None:
    local = open_retriever(whole, "dense")
    for k in (1, 7, 100):
        for found, expected in zip(healthy.search(QUESTIONS, k), local.search(QUESTIONS, k), strict=True):
            assert_same_hits(found, expected)


def test_answers_and_sources_equal_those_of_one_index(healthy: Served, whole: Path) -> None:
    there, here = Pipeline.load(healthy.url), Pipeline.load(whole, retriever="dense")
    answers = zip(there.ask(QUESTIONS), here.ask(QUESTIONS), strict=True)
    for answer, expected in answers:
        assert answer.text == expected.text and answer.missing == ()
        assert [(s.span, s.hit.passage) for s in answer.sources] == [(s.span, s.hit.passage) for s in expected.sources]


def test_the_collection_describes_its_shards(healthy: Served) -> None:
    now = healthy.collection()
    assert (now.retriever, now.fusion, now.kind, now.passages) == ("dense", None, "flat", SHARDS * DOCUMENTS)
    assert [shard.name for shard in now.shards] == [shard.name for shard in healthy.shards]
    assert all(shard.up for shard in now.shards) and now.fingerprint and now.encoder


def test_bad_requests_over_http_are_refused(healthy: Served) -> None:
    def refused(path: str, body: bytes | None) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"{healthy.url}{path}", body)
        with raised.value as answer:
            return answer.status, json.loads(answer.read())["error"]

    assert refused("/search", b"what?")[0] == 400
    assert refused("/search", b'{"questions": [""]}') == (400, "the question is empty: ask something")
    assert refused("/search", None)[0] == refused("/nothing", b"{}")[0] == 404
    with pytest.raises(BadInput, match="k must be a whole number from 1 to 1000"):
        healthy.remote.search(QUESTIONS, 1001)


def test_an_update_of_a_shard_is_served_at_the_next_question(healthy: Served, tmp_path: Path) -> None:
    before, new = healthy.collection(), tmp_path / "new.jsonl"
    new.write_text(json.dumps({"id": "new", "title": "", "text": "A zebra swims in the lemonade."}) + "\n")
    update_index(healthy.shards[0], add=[new])
    ((hit, *_),) = healthy.search(["A zebra swims in the lemonade."], 3)
    assert hit.passage.document == "new" and hit.passage.id == DOCUMENTS
    now = healthy.collection()
    assert now.passages == before.passages + 1
    assert now.fingerprint != before.fingerprint and now.origin == before.origin
    ids = [hit.passage.id for hit in healthy.search(QUESTIONS[:1], 1000)[0]]
    assert sorted(ids) == list(range(SHARDS * DOCUMENTS + 1))
    update_index(healthy.shards[0], delete=["new"])
    assert healthy.collection().passages == before.passages
    assert "new" not in {hit.passage.document for hit in healthy.search(["A zebra?"], 1000)[0]}


def test_a_killed_shard_is_missing_until_ray_restarts_it(healthy: Served) -> None:
    before = healthy.search(QUESTIONS, 30)
    for hits, others in zip(healthy.search(QUESTIONS, 10, lost=(1,)), before, strict=True):
        assert_same_hits(hits, [hit for hit in others if not hit.passage.document.startswith("1-")][:10])
        assert get_missing_shards(hits) == (healthy.shards[1].name,)
    assert healthy.search(QUESTIONS, 30) == before


def test_a_damaged_shard_is_missing_until_it_is_repaired(healthy: Served) -> None:
    file, before = healthy.shards[2] / "dense" / "vectors.npy", healthy.search(QUESTIONS, 9)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    healthy.kill(2)
    wait_until(lambda: "damaged" in (healthy.remote.fetch_collection().shards[2].error or ""))
    now = healthy.collection([True, True, False])
    assert now.missing == (healthy.shards[2].name,)
    assert now.fingerprint is None and now.passages == SHARDS * DOCUMENTS
    file.write_bytes(whole)
    assert healthy.search(QUESTIONS, 9) == before


def test_without_any_shard_a_search_is_an_error(healthy: Served) -> None:
    gone = [shard.with_name(f"{shard.name}.gone") for shard in healthy.shards]
    for shard, away in zip(healthy.shards, gone, strict=True):
        shard.rename(away)
    try:
        wait_until(lambda: read_error(healthy).count(" does not exist)") == SHARDS)
        assert "no shard answers: part-0.index (" in read_error(healthy)
        with pytest.raises(RemoteError, match="no shard answers"):
            Pipeline.load(healthy.url)
    finally:
        for shard, away in zip(healthy.shards, gone, strict=True):
            away.rename(shard)
    wait_until(lambda: not read_error(healthy))
    healthy.search(QUESTIONS, 9)


def read_error(served: Served) -> str:
    """Return the error of a search; an empty string if at least one shard answers."""
    try:
        served.remote.search(QUESTIONS, 9)
    except RemoteError as error:
        return str(error)
    return ""


@contextmanager
def run_command(shards: list[Path], *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command with its own Ray; yield the process and its URL."""
    port = str(free_port())
    line = [sys.executable, "-m", "index.serve", *map(str, shards), "--port", port, *options]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(line, cwd=ROOT, env=environment, **pipes)
    with process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=DEADLINE)
            finally:
                process.kill()  # so that a hanging process does not stop the tests


@pytest.mark.slow
def test_the_command_reports_when_it_is_ready_and_ends_on_interrupt(shards: list[Path]) -> None:
    with run_command(shards[:2]) as (process, url):
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready: 2 shards at {url} (Ctrl-C ends it)\n"
        assert len(RemoteRetriever(url).search(QUESTIONS, 5)[0]) == 5
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0 and "Traceback" not in err and "index.serve: stopped\n" in err


@pytest.mark.slow
def test_a_second_replica_hides_a_kill(shards: list[Path]) -> None:
    with run_command(shards, "--retriever", "bm25", "--replicas", "2", "--timeout", "20") as (process, url):
        assert process.stdout is not None and process.stdout.readline().startswith("ready")
        served, expected = Served(url, shards), search_merged(shards, "bm25", 9)
        for n in range(60):
            if n == 5:
                first, _ = served.processes(1, process.pid)
                os.kill(first, signal.SIGKILL)
            found = served.remote.search(QUESTIONS, 9)
            assert not any(map(get_missing_shards, found))
            assert [[(h.passage.id, h.score) for h in hits] for hits in found] == [
                [(h["id"], h["score"]) for h in hits] for hits in expected
            ]


@pytest.mark.slow
def test_shards_that_cannot_be_served_are_named_before_the_start(shards: list[Path], tmp_path: Path) -> None:
    terms = build_from([shards[0].with_suffix(".jsonl")], tmp_path / "terms.index", retriever="bm25")
    for other, line in (
        (terms, "index.serve: the shards do not have one retriever (part-0.index: hybrid; terms.index: bm25)"),
        (tmp_path / "nothing", f"index.serve: {tmp_path / 'nothing'} does not exist"),
    ):
        with run_command([shards[0], other]) as (process, _):
            out, err = process.communicate(timeout=DEADLINE)
            assert process.returncode == 2 and out == "" and "Traceback" not in err and line in err
