"""Clients of a served index, tested with a small HTTP server in place of the real one."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import run

from ragqa.artefacts.paths import parse_url
from ragqa.errors import BadInput, Mismatch, RemoteError
from ragqa.evaluation import Report, evaluate
from ragqa.pipeline import Pipeline
from ragqa.retrieval import remote as protocol
from ragqa.retrieval.base import get_missing_shards
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.remote import BATCH, PROTOCOL, RemoteRetriever, ServedCollection, ServedShard, hit_to_row
from ragqa.types import Hit, Passage, Question

QUESTION = "Who built Skarvik Lighthouse?"
Reply = tuple[int, dict[str, Any] | bytes]


class FakeServer(ThreadingHTTPServer):
    """A server that replies as an index server does, unless ``override`` is set."""

    daemon_threads = True

    def __init__(self, index: Path) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.retriever, self.url = open_retriever(index), f"http://127.0.0.1:{self.server_address[1]}"
        self.connections, self.sizes = 0, []
        self.closes_connections, self.missing = False, ()
        self.override: Callable[[], Reply] | None = None

    def collection(self) -> ServedCollection:
        parts = [ServedShard(name="a", up=True, passages=2, fingerprint="f"), *self.list_missing_shards()]
        known = None if self.missing else "0123456789abcdef"
        return ServedCollection(
            retriever="hybrid",
            fusion="weighted",
            kind="flat",
            encoder="e",
            fingerprint=known,
            origin=known,
            corpus=known,
            passages=3,
            sources=("documents",),
            shards=tuple(parts),
        )

    def list_missing_shards(self) -> list[ServedShard]:
        return [ServedShard(name=name, up=False, passages=1, fingerprint=None, error="gone") for name in self.missing]

    def handle_error(self, *arguments: object) -> None:
        """Ignore errors: some tests close connections on purpose."""

    def reply(self, path: str, body: bytes) -> Reply:
        if self.override:
            return self.override()
        if path == "/healthz":
            return 200, {"ragqa": PROTOCOL, **asdict(self.collection())}
        request = json.loads(body)
        self.sizes.append(len(request["questions"]))
        hits = self.retriever.search(request["questions"], request["k"])
        found = [[hit_to_row(hit) for hit in each] for each in hits]
        return 200, {"ragqa": PROTOCOL, "missing": list(self.missing), "found": found}


class FakeHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, row = self.server.reply(self.path, body)
        data = row if isinstance(row, bytes) else json.dumps(row).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = self.server.closes_connections

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(index: Path) -> Iterator[FakeServer]:
    with FakeServer(index) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_the_examples_show_the_protocol_in_use() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "index.md").read_text("utf-8")
    (answer,) = re.findall(r'\{"ragqa": \d+, "missing".*\}', guide)
    assert re.findall(r'"ragqa": (\d+)', str(protocol.__doc__) + answer) == [str(PROTOCOL)] * 2
    hit = re.search(r"\[\[\{(.*?)\}", answer)
    assert hit and re.findall(r'"(\w+)"', hit[1]) == list(hit_to_row(Hit(Passage(0, "", "", "", "", 0, 0), 1.0)))


def test_hits_equal_those_of_a_local_search(server: FakeServer, index: Path) -> None:
    questions = [QUESTION, "Who founded the bakery?", "comet"]
    assert RemoteRetriever(server.url).search(questions, 2) == open_retriever(index).search(questions, 2)
    assert RemoteRetriever(server.url).search([], 2) == []


def test_questions_are_sent_in_batches_over_one_connection(server: FakeServer) -> None:
    remote = RemoteRetriever(f"{server.url}/")
    questions = [f"Who built number {n}?" for n in range(BATCH + 5)]
    assert remote.search(questions, 1) == server.retriever.search(questions, 1)
    assert server.sizes == [BATCH, 5]
    assert server.connections == 1


def test_threads_receive_their_own_answers(server: FakeServer) -> None:
    remote = RemoteRetriever(server.url)
    questions = [QUESTION, "Who founded the bakery?", "Who discovered the comet?"] * 10
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda question: remote.search([question], 1)[0][0].passage.text, questions))
    assert found == [hits[0].passage.text for hits in server.retriever.search(questions, 1)]
    assert server.connections <= 8


def test_a_closed_connection_is_reopened(server: FakeServer) -> None:
    server.closes_connections = True
    remote = RemoteRetriever(server.url)
    assert [remote.search([QUESTION], 1) for _ in range(3)] == [server.retriever.search([QUESTION], 1)] * 3
    assert server.connections == 3


def make_reply(status: int, **row: Any) -> Callable[[], Reply]:
    return lambda: (status, {"ragqa": PROTOCOL, **row})


@pytest.mark.parametrize(
    ("reply", "error", "line"),
    [
        (lambda: (200, b"<html>hello</html>"), RemoteError, "is not an index served by ragqa: it answers 200"),
        (lambda: (404, b'{"detail": "no"}'), RemoteError, "is not an index served by ragqa: it answers 404"),
        (lambda: (200, b"[" * 100_000), RemoteError, "is not an index served by ragqa"),
        (
            make_reply(200, ragqa=PROTOCOL + 1),
            Mismatch,
            f"uses version {PROTOCOL + 1} of the protocol, .* update ragqa",
        ),
        (make_reply(400, error="k must be 5"), BadInput, "k must be 5"),
        (make_reply(503, error="no shard answers: a (gone)"), RemoteError, r"no shard answers: a \(gone\)"),
        (make_reply(500), RemoteError, "status 500"),
        (make_reply(200), RemoteError, "does not answer as an index served by ragqa: KeyError"),
        (make_reply(200, missing=[], found=[]), RemoteError, "0 answers to 1 questions"),
        (make_reply(200, missing=[], found=[[{"id": 1}]]), RemoteError, "does not answer as .*document"),
        (make_reply(200, missing=None, found=[[]]), RemoteError, "does not answer as"),
    ],
)
def test_invalid_replies_are_reported_in_one_line(server: FakeServer, reply, error: type[Exception], line: str) -> None:
    server.override = reply
    with pytest.raises(error, match=line) as raised:
        RemoteRetriever(server.url).search([QUESTION], 1)
    assert server.url in str(raised.value) and "\n" not in str(raised.value)


def test_a_server_that_does_not_answer_times_out(server: FakeServer) -> None:
    released = threading.Event()
    server.override = lambda: (released.wait(60), (200, b"{}"))[1]
    with pytest.raises(RemoteError, match=r"did not answer within 0\.1 seconds"):
        RemoteRetriever(server.url, timeout=0.1).search([QUESTION], 1)
    released.set()


def test_an_unreachable_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RemoteError, match=r"cannot be reached \(Connection refused\): is an index served there\?"):
        Pipeline.load(f"http://127.0.0.1:{port}")
    with pytest.raises(RemoteError, match="cannot be reached"):
        RemoteRetriever("http://host.invalid").search([QUESTION], 1)


def test_a_server_that_does_not_speak_http_is_reported() -> None:
    def greet(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        with pytest.raises(RemoteError, match="does not answer as an index served by ragqa"):
            RemoteRetriever(f"http://127.0.0.1:{listener.getsockname()[1]}").fetch_collection()
        thread.join()


@pytest.mark.parametrize("url", ["http://[::1", "http://host:port", "http://:80", "notes.index"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="is not a URL"):
        RemoteRetriever(url)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("http://host:8077/", "http://host:8077"),
        (Path("http://host:8077"), "http://host:8077"),
        (Path("HTTPS://host/wiki/"), "https://host/wiki"),
        ("http://", None),
        ("./http:/host", None),
        ("hf:http", None),
        (None, None),
    ],
)
def test_urls_are_recognised_in_texts_and_paths(path: str | Path | None, url: str | None) -> None:
    assert parse_url(path) == url


def test_k_is_checked_by_the_client(server: FakeServer) -> None:
    with pytest.raises(BadInput, match="k = 0"):
        RemoteRetriever(server.url).search([QUESTION], 0)
    assert server.connections == 0


def test_a_pipeline_answers_as_over_a_local_index(server: FakeServer, index: Path) -> None:
    served, local = Pipeline.load(Path(server.url)), Pipeline.load(index)
    assert served.ask([QUESTION, "Who founded the bakery?"]) == local.ask([QUESTION, "Who founded the bakery?"])
    described = served.describe()
    assert described == {
        "k": local.k,
        "reader": local.reader.fingerprint,
        "reader_kind": "span",
        "retriever": "hybrid",
        "fusion": "weighted",
        "kind": "flat",
        "encoder": "e",
        "index": "0123456789abcdef",
        "passages": 3,
        "corpus": "0123456789abcdef",
        "sources": ("documents",),
        "shards": 1,
    }


def test_a_saved_pipeline_keeps_the_url_and_checks_the_index(server: FakeServer, tmp_path: Path, monkeypatch) -> None:
    Pipeline.load(server.url, k=3).save(tmp_path / "p")
    again = Pipeline.load(tmp_path / "p")
    assert again.k == 3
    assert again.notes == (f"{tmp_path / 'p'} sends the questions to {server.url}",)
    assert isinstance(again.retriever, RemoteRetriever) and again.retriever.url == server.url
    other = {**asdict(server.collection()), "ragqa": PROTOCOL, "origin": "another"}
    server.override = lambda: (200, other)
    with pytest.raises(Mismatch, match=r"the index of .* is not the index it was saved with"):
        Pipeline.load(tmp_path / "p")


def test_search_settings_that_differ_from_the_servers_are_refused(server: FakeServer) -> None:
    assert Pipeline.load(server.url, retriever="hybrid", fusion="weighted").is_loaded
    for wish in ({"retriever": "bm25"}, {"fusion": "rrf"}, {"encoder": "default"}):
        with pytest.raises(BadInput, match=f"{next(iter(wish))} .*searched with its server's own settings"):
            Pipeline.load(server.url, **wish)


def test_a_partial_answer_names_the_missing_shards(server: FakeServer, capsys) -> None:
    server.missing = ("wiki-1.index", "wiki-3.index")
    (hits,) = RemoteRetriever(server.url).search([QUESTION], 2)
    assert get_missing_shards(hits) == server.missing and get_missing_shards(list(hits)) == ()
    ask = ("ask", QUESTION, "--index", server.url, "--min-confidence", "0")
    _, out, _ = run(*ask, capsys=capsys)
    assert out.startswith("Ada Holm") and out.endswith("Partial: shards wiki-1.index, wiki-3.index did not answer.\n")
    _, out, _ = run(*ask, "--json", capsys=capsys)
    assert json.loads(out)["missing"] == list(server.missing)
    server.missing = ()
    _, out, _ = run(*ask, "--json", capsys=capsys)
    assert json.loads(out)["missing"] == []


def test_a_pipeline_over_an_incomplete_index_is_not_saved(server: FakeServer, tmp_path: Path) -> None:
    server.missing = ("b",)
    pipeline = Pipeline.load(server.url)
    assert pipeline.describe()["missing"] == ("b",) and pipeline.describe()["index"] is None
    with pytest.raises(RemoteError, match="was missing"):
        pipeline.save(tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_a_report_describes_the_served_index(server: FakeServer, tmp_path: Path, capsys) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"question": QUESTION, "answer": ["Ada Holm"]}) + "\n")
    status, out, _ = run("eval", str(file), "--index", server.url, "--out", str(tmp_path / "r"), capsys=capsys)
    assert status == 0, out
    system = Report.load(tmp_path / "r").figures["about"]["system"]
    assert (system["index"], system["shards"], system["retriever"]) == ("0123456789abcdef", 1, "hybrid")


def test_a_partial_answer_is_never_scored(server: FakeServer, tmp_path: Path) -> None:
    pipeline, questions = Pipeline.load(server.url), [Question(f"{QUESTION} {n}", ("Ada Holm",)) for n in range(3)]

    def iterate_questions() -> Iterator[Question]:
        for number, question in enumerate(questions):
            server.missing = ("b",) if number == 2 else ()
            yield question

    with pytest.raises(RemoteError, match="no answer from b: scores on a part of the index would be wrong"):
        evaluate(pipeline, iterate_questions(), out=tmp_path / "r")
    assert len((tmp_path / ".r.evaluating" / "rows.jsonl").read_text().splitlines()) == 2
    with pytest.raises(RemoteError, match="no answer from b"):
        evaluate(Pipeline.load(server.url), questions, out=tmp_path / "other")
    server.missing = ()
    assert evaluate(pipeline, questions, out=tmp_path / "r").figures["about"]["questions"] == 3
