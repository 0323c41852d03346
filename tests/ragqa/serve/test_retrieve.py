"""Requests of Search-R1's trainer, and the replies that it reads."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from tests.helpers.serving import open_client, open_server


@pytest.fixture(scope="module")
def pipeline(index: Path) -> Pipeline:
    return Pipeline.load(index)


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Any]:
    with open_client({"documents": pipeline}) as client:
        yield client


def retrieve(client: Any, queries: list[str], topk: int | None = 3, return_scores: bool = True, **options: Any) -> Any:
    """Send a request as the trainer does, and return the response."""
    body = {"queries": queries, "topk": topk, "return_scores": return_scores, **options}
    return client.post("/retrieve", json=body)


def test_the_trainer_reads_titles_and_texts(client: Any, pipeline: Pipeline) -> None:
    queries = ["Who built Skarvik Lighthouse?", "rye bread"]
    results = retrieve(client, queries, 2).json()["result"]
    for result, hits in zip(results, pipeline.retriever.search(queries, 2), strict=True):
        for item, hit in zip(result, hits, strict=True):
            title, *lines = item["document"]["contents"].split("\n")
            assert title == f'"{hit.passage.context}"' and "\n".join(lines) == hit.passage.text
            assert item["score"] == hit.score and item["document"]["id"].startswith(hit.passage.document)


def test_without_scores_the_items_are_the_documents(client: Any) -> None:
    with_scores = retrieve(client, ["rye bread"]).json()["result"][0]
    without = retrieve(client, ["rye bread"], return_scores=False).json()["result"][0]
    assert without == [item["document"] for item in with_scores]


def test_the_default_is_three_passages(client: Any) -> None:
    assert len(retrieve(client, ["bread"], None).json()["result"][0]) == 3
    assert len(client.post("/retrieve", json={"queries": ["bread"]}).json()["result"][0]) == 3


def test_records_keep_their_ids(tmp_path: Path) -> None:
    from ragqa.indexing.build import IndexConfig, build_index

    rows = [("1", "Aaron is a prophet", "Aaron"), ("2", "Ants are insects", "Ant")]
    text = "id\ttext\ttitle\n" + "".join(f'{n}\t"{text}"\t{title}\n' for n, text, title in rows)
    (tmp_path / "psgs.tsv").write_text(text)
    build_index([tmp_path / "psgs.tsv"], tmp_path / "a.index", IndexConfig(retriever="bm25"))
    with open_client({"a": Pipeline.load(tmp_path / "a.index")}) as client:
        (item,) = retrieve(client, ["prophet"]).json()["result"][0]
        assert item["document"] == {"id": "1", "contents": '"Aaron"\nAaron is a prophet'}


def test_a_model_can_write_queries_without_words(client: Any) -> None:
    results = retrieve(client, ["", "rye bread", " \n", "\x00\x1b", "x" * 50_000]).json()["result"]
    assert [len(result) > 0 for result in results] == [False, True, False, False, True]
    assert retrieve(client, []).json() == {"result": []}


@pytest.mark.thorough
def test_thousands_of_queries_in_a_call(client: Any) -> None:
    queries = [f"bread {number}" for number in range(3000)]
    results = retrieve(client, queries, 1).json()["result"]
    assert len(results) == 3000 and all(len(result) == 1 for result in results)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"queries": ["a"] * 10_001, "topk": 1}, "queries: List should have at most 10000 items"),
        ({"queries": ["a"] * 1000, "topk": 1000}, "1000 queries with topk = 1000 are 1000000 passages"),
        ({"queries": "a"}, "queries: Input should be a valid list"),
        ({"queries": [1]}, "queries.0: Input should be a valid string"),
        ({"queries": ["a"], "topk": 0}, "topk: Input should be greater than or equal to 1"),
    ],
)
def test_bad_calls_are_refused(client: Any, body: Any, message: str) -> None:
    reply = client.post("/retrieve", json=body)
    assert reply.status_code == 400 and message in reply.json()["error"]["message"]


def test_a_question_does_not_wait_for_a_large_call(pipeline: Pipeline) -> None:
    with open_server({"documents": pipeline}) as port:

        def post(path: str, row: dict[str, Any]) -> Any:
            headers = {"Content-Type": "application/json"}
            request = Request(f"http://127.0.0.1:{port}{path}", json.dumps(row).encode(), headers)
            with urlopen(request, timeout=60) as reply:
                return json.load(reply)

        seconds: dict[str, float] = {}
        start = time.perf_counter()

        def call() -> None:
            post("/retrieve", {"queries": [f"bread of {n}" for n in range(2000)], "topk": 3})
            seconds["large"] = time.perf_counter() - start

        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(0.3)
        assert post("/ask", {"question": "Who founded the bakery on Mill Street?"})["answer"] == "Otto Brandt"
        seconds["question"] = time.perf_counter() - start
        thread.join()
        assert seconds["question"] < seconds["large"]
