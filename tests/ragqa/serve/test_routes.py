"""Routes for questions, documents and health, and their OpenAPI description."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from ragqa.artefacts.lock import hold_lock
from ragqa.indexing.update import update_index
from ragqa.serve import schemas
from tests.helpers.serving import WritingPipeline, open_client, read_events

QUESTION = "Who built Skarvik Lighthouse?"


@pytest.fixture(scope="module")
def pipeline(index: Path) -> Pipeline:
    return Pipeline.load(index)


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Any]:
    with open_client({"documents": pipeline, "again": pipeline}) as client:
        yield client


def test_ask_replies_as_the_command_prints(client: Any, pipeline: Pipeline) -> None:
    reply = client.post("/ask", json={"question": QUESTION})
    assert reply.status_code == 200 and reply.json()["answer"] == "Ada Holm"
    assert reply.json() == pipeline.ask(QUESTION).to_dict()
    schemas.AnswerReply.model_validate(reply.json())


def test_ask_takes_k_and_the_confidence_to_decline(client: Any) -> None:
    row = client.post("/ask", json={"question": QUESTION, "k": 1, "min_confidence": 1}).json()
    assert row["answer"] is None and "below 1.00" in row["reason"] and len(row["sources"]) == 1
    assert row["alternatives"][0]["answer"] == "Ada Holm"
    schemas.AnswerReply.model_validate(row)


def test_ask_searches_the_documents_of_a_filter(client: Any) -> None:
    row = client.post("/ask", json={"question": QUESTION, "filter": {"paths": ["bakery.txt"]}}).json()
    assert {source["path"].rpartition("/")[2] for source in row["sources"]} == {"bakery.txt"}
    row = client.post("/ask", json={"question": QUESTION, "filter": {"paths": ["nothing/*"]}}).json()
    assert row["answer"] is None and row["reason"] == "no document matches the filter: none is in nothing/*"


def test_a_question_refers_to_the_turns_before_it(client: Any) -> None:
    turns = [{"question": QUESTION, "answer": "Ada Holm", "title": "Skarvik Lighthouse"}]
    row = client.post("/ask", json={"question": "How tall is it?", "turns": turns}).json()
    assert row["question"] == "How tall is it?" and row["asked"] == "How tall is Skarvik Lighthouse?"
    assert row["answer"] == "34 metres"


def test_a_stream_sends_the_passages_and_then_the_answer(client: Any) -> None:
    reply = client.post("/ask", json={"question": QUESTION, "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    (first, found), (second, answer) = read_events(reply.text)
    assert (first, second) == ("passages", "answer")
    assert found == client.get("/search", params={"q": QUESTION}).json()
    assert answer == client.post("/ask", json={"question": QUESTION}).json()


def test_a_writing_reader_streams_its_text(pipeline: Pipeline) -> None:
    with open_client({"a": WritingPipeline(pipeline)}) as client:
        events = read_events(client.post("/ask", json={"question": QUESTION, "stream": True}).text)
        assert [name for name, _ in events] == ["passages", "text", "text", "answer"]
        assert [data["text"] for name, data in events if name == "text"] == ["Ada ", "Holm"]
        assert client.post("/ask", json={"question": QUESTION}).json()["answer"] == "Ada Holm"


def test_an_error_after_the_first_event_is_an_event(pipeline: Pipeline) -> None:
    from ragqa.errors import RemoteError

    with open_client({"a": WritingPipeline(pipeline, RemoteError("http://10.0.0.7 is down"))}) as client:
        events = read_events(client.post("/ask", json={"question": QUESTION, "stream": True}).text)
        assert events[-1][0] == "error" and events[-1][1]["error"]["type"] == "overloaded_error"
        assert "10.0.0.7" not in json.dumps(events)


def test_search_returns_passages_with_scores(client: Any) -> None:
    row = client.get("/search", params={"q": "skarvik lighthose", "k": 2}).json()
    schemas.SearchReply.model_validate(row)
    assert row["asked"] == "skarvik lighthouse" and row["passages"][0]["title"] == "Skarvik Lighthouse"
    assert row["passages"][0]["score"] > row["passages"][1]["score"]
    row = client.get("/search", params={"q": "lighthouse", "path": ["*.txt", "comet.html"]}).json()
    assert "Skarvik Lighthouse" not in {passage["title"] for passage in row["passages"]}
    assert len(row["passages"]) == 2


def test_documents_are_listed_in_parts(client: Any, folder: Path) -> None:
    row = client.get("/documents").json()
    schemas.DocumentsReply.model_validate(row)
    assert row["total"] == 3 and [d["title"] for d in row["documents"]][1:] == ["Comet Varga", "Skarvik Lighthouse"]
    assert row["documents"][2]["id"] == str(folder / "lighthouse.md")
    part = client.get("/documents", params={"first": 1, "limit": 1}).json()
    assert part["documents"] == row["documents"][1:2] and part["first"] == 1 and part["total"] == 3


def test_a_document_is_read_with_the_answer_marked(client: Any) -> None:
    source = client.post("/ask", json={"question": QUESTION}).json()["sources"][0]
    span = {"start": source["answer_start"], "end": source["answer_end"]}
    path = "/documents/" + source["document"].replace("/", "%2F")
    row = client.get(path, params={**span, "path": source["path"]}).json()
    schemas.DocumentTextReply.model_validate(json.loads(json.dumps(row)), strict=False)
    marked = [part["text"][start:end] for part in row["parts"] for start, end in part["marks"]]
    assert marked == ["Ada Holm"] and row["title"] == "Skarvik Lighthouse"
    assert client.get(path).json()["parts"][0]["marks"] == []
    assert client.get(path, params={"path": "/elsewhere"}).status_code == 404


def test_long_documents_are_read_from_the_marked_passage_on(tmp_path: Path) -> None:
    from ragqa.indexing.build import IndexConfig, build_index

    text = "\n".join(f"Line {n} of the long report." for n in range(2000))
    (tmp_path / "long.txt").write_text(text)
    build_index([tmp_path / "long.txt"], tmp_path / "a.index", IndexConfig(retriever="bm25"))
    start = text.index("Line 1700 ")
    with open_client({"a": Pipeline.load(tmp_path / "a.index")}) as client:
        path = "/documents/" + str(tmp_path / "long.txt").replace("/", "%2F")
        row = client.get(path, params={"start": start, "end": start + 9, "limit": 6}).json()
        assert len(row["parts"]) == 6 and row["passages"] > 50 and row["first"] > 50
        assert [p["text"][slice(*mark)] for p in row["parts"] for mark in p["marks"]] == ["Line 1700"]
        assert client.get(path, params={"first": 0, "limit": 1}).json()["parts"][0]["text"].startswith("Line 0 ")


def test_ids_that_several_files_have_need_the_path(tmp_path: Path) -> None:
    from ragqa.indexing.build import IndexConfig, build_index

    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "7", "text": f"text of {name}"}) + "\n")
    build_index([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "x.index", IndexConfig(retriever="bm25"))
    with open_client({"x": Pipeline.load(tmp_path / "x.index")}) as client:
        reply = client.get("/documents/7")
        assert reply.status_code == 400 and "2 documents have this id" in reply.json()["error"]["message"]
        row = client.get("/documents/7", params={"path": str(tmp_path / "b.jsonl")}).json()
        assert row["parts"][0]["text"] == "text of b"


def test_indexes_have_names_and_the_first_is_the_default(client: Any, tmp_path: Path) -> None:
    assert client.get("/documents").json()["index"] == "documents"
    assert client.get("/documents", params={"index": "again"}).json()["index"] == "again"
    reply = client.post("/ask", json={"question": QUESTION, "index": "other"})
    assert reply.status_code == 404
    assert reply.json()["error"]["message"] == "there is no index 'other': choose one of documents, again"


def test_an_updated_index_is_seen_without_a_restart(folder: Path, tmp_path: Path) -> None:
    from ragqa.indexing.build import build_index

    build_index([folder], tmp_path / "a.index")
    (tmp_path / "ferry.md").write_text("# Ferry\n\nThe ferry Brenna was launched by Nils Moe in 1932.\n")
    with open_client({"a": Pipeline.load(tmp_path / "a.index")}) as client:
        assert client.get("/healthz").json()["indexes"][0]["passages"] == 3
        update_index(tmp_path / "a.index", add=[tmp_path / "ferry.md"])
        assert client.post("/ask", json={"question": "Who launched the ferry Brenna?"}).json()["answer"] == "Nils Moe"
        assert client.get("/documents").json()["total"] == 4
        assert client.get("/healthz").json()["indexes"][0]["passages"] == 4


def test_documents_are_added_and_deleted_if_that_is_allowed(folder: Path, tmp_path: Path) -> None:
    from ragqa.indexing.build import build_index

    build_index([folder], tmp_path / "a.index")
    with open_client({"a": Pipeline.load(tmp_path / "a.index")}, can_edit=True) as client:
        text = "# Ferry\n\nThe ferry Brenna was launched by Nils Moe in 1932.\n"
        row = client.post("/documents", params={"name": "ferry.md"}, content=text.encode()).json()
        schemas.ChangeReply.model_validate(row)
        assert row["added"] == 1 and row["document"] == str(tmp_path / "a.index.uploads" / "ferry.md")
        assert client.post("/ask", json={"question": "Who launched the ferry Brenna?"}).json()["answer"] == "Nils Moe"
        path = "/documents/" + row["document"].replace("/", "%2F")
        assert client.delete(path).json()["deleted"] == 1
        assert client.get(path).status_code == 404 and not Path(row["document"]).exists()
        reply = client.post("/documents", params={"name": "a.pdf"}, content=b"no PDF")
        assert reply.status_code == 400 and "a.pdf" in reply.json()["error"]["message"]
        assert client.post("/documents", params={"name": "../a.md"}, content=b"x").status_code == 400
        assert not list((tmp_path / "a.index.uploads").iterdir())
        with hold_lock(tmp_path / ".a.index.lock", wait=False):
            reply = client.post("/documents", params={"name": "b.md"}, content=b"# B")
            assert (reply.status_code, reply.headers["retry-after"]) == (409, "1")
            message = "another process is changing the index: try again later"
            assert reply.json() == {"error": {"message": message, "type": "conflict_error"}}


def test_documents_are_not_changed_without_permission(client: Any, folder: Path) -> None:
    for reply in (
        client.post("/documents", params={"name": "a.md"}, content=b"# A\n\ntext"),
        client.delete("/documents/" + str(folder / "bakery.txt").replace("/", "%2F")),
    ):
        assert reply.status_code == 403 and "--allow-edit" in reply.json()["error"]["message"]
    assert client.get("/documents").json()["total"] == 3


def test_health_describes_the_server(client: Any) -> None:
    row = client.get("/healthz").json()
    schemas.HealthReply.model_validate(row)
    assert row["status"] == "ok" and row["needs_token"] is False and row["can_edit"] is False
    assert row["indexes"][0] == {"name": "documents", "passages": 3, "retriever": "hybrid", "reader": "span"}


def test_openapi_describes_every_route(client: Any) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {f"{method} {path}" for path, methods in paths.items() for method in methods} == {
        "post /ask",
        "get /search",
        "get /documents",
        "post /documents",
        "get /documents/{id}",
        "delete /documents/{id}",
        "get /files/{id}",
        "post /retrieve",
        "get /v1/models",
        "get /v1/models/{id}",
        "post /v1/chat/completions",
        "get /healthz",
    }


def test_openapi_describes_parameters_and_the_errors_that_are_sent(client: Any) -> None:
    description = client.get("/openapi.json").json()
    operations = [each for methods in description["paths"].values() for each in methods.values()]
    bare = [p["name"] for operation in operations for p in operation.get("parameters", []) if "description" not in p]
    assert bare == []
    without_404 = {
        path
        for path, methods in description["paths"].items()
        for each in methods.values()
        if "404" not in each["responses"]
    }
    assert without_404 == {"/healthz", "/v1/models"}
    errors = {status for operation in operations for status in operation["responses"]} - {"200"}
    assert {"400", "401", "404"} <= errors and "422" not in errors  # FastAPI's own status for malformed requests
    assert "ValidationError" not in json.dumps(description)


def test_the_page_is_served(client: Any) -> None:
    reply = client.get("/")
    assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/html")
    assert client.get("/index.html").text == reply.text
