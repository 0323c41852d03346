"""Tools for agents: in memory, over HTTP, and over standard input and output."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytest.importorskip("fastapi", reason="the extra serve is not installed")

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from ragqa import Pipeline
from ragqa.serve import mcp_tools
from ragqa.serve.mcp_tools import make_mcp_server
from ragqa.serve.schemas import PlaceReply
from ragqa.serve.work import Work
from ragqa.types import SEPARATORS
from tests.helpers.serving import open_client, open_server

QUESTION = "Who built Skarvik Lighthouse?"


@pytest.fixture(scope="module")
def pipeline(index: Path) -> Pipeline:
    return Pipeline.load(index)


def call(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Call tools with one client, and return the results."""

    async def run(client: Client) -> list[Any]:
        return [await client.call_tool(name, arguments) for name, arguments in calls]

    return use(server, run)


def use(server: Any, run: Callable[[Client], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Client(server() if callable(server) else server) as client:
            return await run(client)

    return asyncio.run(main())


@pytest.fixture
def server(pipeline: Pipeline) -> Callable[[], Any]:
    return lambda: make_mcp_server(Work({"documents": pipeline}), "documents")


def read(result: Any) -> Any:
    """Return the object of a result, which has it as text and as structured content."""
    assert not result.is_error, result.content
    (content,) = result.content
    assert content.type == "text" and json.loads(content.text) == result.structured_content
    return result.structured_content


def test_the_tools_describe_themselves(server: Any) -> None:
    tools = {tool.name: tool for tool in use(server, lambda client: client.list_tools()).tools}
    assert {name: sorted(tool.input_schema["properties"]) for name, tool in tools.items()} == {
        "search": ["query"],
        "fetch": ["id"],
        "ask": ["k", "min_confidence", "question"],
        "verify": ["document", "quote"],
    }
    assert all(tool.annotations.read_only_hint and tool.description and tool.output_schema for tool in tools.values())
    assert set(tools["search"].output_schema["properties"]) == {"results"}


def test_search_and_fetch_have_the_shapes_of_chatgpts_connectors(server: Any, pipeline: Pipeline) -> None:
    (found,) = map(read, call(server, ("search", {"query": QUESTION})))
    assert set(found) == {"results"} and all(set(row) == {"id", "title", "url"} for row in found["results"])
    best = pipeline.retriever.search([QUESTION], 1)[0][0].passage
    first = found["results"][0]
    assert first["id"] == f"{best.document}#{best.start}" and first["title"] == best.title
    assert first["url"] == Path(best.path).as_uri()
    assert len({row["id"].rpartition("#")[0] for row in found["results"]}) == len(found["results"])
    (document,) = map(read, call(server, ("fetch", {"id": first["id"]})))
    assert set(document) == {"id", "title", "text", "url", "metadata"} and document["id"] == first["id"]
    assert best.text in document["text"] and document["metadata"]["is_complete"] is True
    assert document["metadata"]["next"] is None


def test_a_long_document_is_fetched_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragqa.indexing.build import IndexConfig, build_index

    monkeypatch.setattr(mcp_tools, "MAX_FETCHED", 2000)
    text = "\n".join(f"Line {number} of the long report." for number in range(1, 301))
    (tmp_path / "report.txt").write_text(text)
    build_index([tmp_path / "report.txt"], tmp_path / "i.index", IndexConfig(retriever="bm25"))
    work = Work({"i": Pipeline.load(tmp_path / "i.index")})
    parts, following = [], str(tmp_path / "report.txt")
    while following:
        (part,) = map(read, call(lambda: make_mcp_server(work, "i"), ("fetch", {"id": following})))
        assert len(part["text"]) < 2100 and part["metadata"]["is_complete"] is False
        monkeypatch.setattr(mcp_tools, "_BEFORE", 0)
        parts.append(part["text"])
        following = part["metadata"]["next"]
    assert len(parts) > 3 and " ".join(" ".join(parts).split()) == " ".join(text.split())


def test_ask_gives_the_answer_as_json(server: Any, pipeline: Pipeline) -> None:
    kept, declined = map(
        read,
        call(server, ("ask", {"question": QUESTION}), ("ask", {"question": QUESTION, "min_confidence": 1, "k": 2})),
    )
    assert kept == json.loads(json.dumps(pipeline.ask(QUESTION).to_dict()))
    assert declined["answer"] is None and declined["alternatives"] and len(declined["sources"]) == 2


def test_verify_finds_a_quotation_or_shows_the_difference(server: Any, pipeline: Pipeline) -> None:
    best = pipeline.retriever.search([QUESTION], 1)[0][0].passage
    words = best.text.split()[:8]
    changed = " ".join([*words[:3], "never", *words[4:]])
    good, bad = map(
        read,
        call(
            server,
            ("verify", {"quote": " ".join(words), "document": f"{best.document}#{best.start}"}),
            ("verify", {"quote": changed, "document": best.document}),
        ),
    )
    assert good["found"] and good["start"] == best.start and good["line"] == best.number and good["difference"] is None
    assert not bad["found"] and f"[-never-]{{+{words[3]}+}}" in bad["difference"] and bad["start"] == best.start


def test_places_have_the_same_fields_in_all_replies(server: Any) -> None:
    tools = {tool.name: tool.output_schema for tool in use(server, lambda client: client.list_tools()).tools}
    fields = {*SEPARATORS, "sheet"}
    assert set(PlaceReply.model_fields) == fields <= set(tools["verify"]["properties"])
    assert fields <= set(tools["ask"]["$defs"]["SourceReply"]["properties"])


def test_errors_are_results_in_one_line(server: Any) -> None:
    results = call(
        server,
        ("fetch", {"id": "nowhere.md"}),
        ("verify", {"quote": "…", "document": "nowhere.md"}),
        ("ask", {"question": " "}),
        ("ask", {"question": "a?", "k": 10**6}),
        ("search", {}),
    )
    assert all(result.is_error for result in results)
    texts = [result.content[0].text for result in results]
    assert texts[0] == "Error executing tool fetch: there is no document 'nowhere.md': search for its id"
    assert not any("Traceback" in text or "site-packages" in text for text in texts)


def test_the_tools_work_over_http_and_cite_the_page(pipeline: Pipeline, tmp_path: Path) -> None:
    with open_server({"documents": pipeline, "other": pipeline}) as port:
        for index, address in (("documents", "/mcp"), ("other", "/mcp?index=other")):
            url = f"http://127.0.0.1:{port}"
            found, answer = map(
                read, call(url + address, ("search", {"query": QUESTION}), ("ask", {"question": QUESTION}))
            )
            assert found["results"][0]["url"].startswith(f"{url}/?index={index}&document=")
            assert answer["answer"] == pipeline.ask(QUESTION).text


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_http_has_the_rules_of_the_server(pipeline: Pipeline) -> None:
    lines: list[str] = []
    with open_client({"documents": pipeline}, lines, token="0123456789abcdef") as client:
        assert client.post("/mcp", json=PING, headers=ACCEPT).status_code == 401
        headers = {**ACCEPT, "Authorization": "Bearer 0123456789abcdef"}
        assert client.post("/mcp", json=PING, headers=headers).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert client.post("/mcp?index=none", json=PING, headers=headers).status_code == 404
        assert client.get("/mcp", headers=headers).status_code == 405  # it would be an endless stream
        assert client.post(
            "/mcp", content=b"{", headers={**headers, "Content-Type": "application/json"}
        ).is_client_error
    with open_client({"documents": pipeline}) as client:
        assert client.post("/mcp", json=PING, headers={**ACCEPT, "Host": "evil.example"}).status_code == 421
        assert client.post("/mcp", json=PING, headers={**ACCEPT, "Origin": "http://evil.example"}).status_code == 403


def test_questions_are_logged_only_if_asked_for(pipeline: Pipeline) -> None:
    body = {**PING, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "a secret"}}}
    for is_logged in (False, True):
        lines: list[str] = []
        with open_client({"documents": pipeline}, lines, log_questions=is_logged) as client:
            assert client.post("/mcp", json=body, headers=ACCEPT).json()["result"]["isError"] is False
        assert ("a secret" in lines[0]) is is_logged and "/mcp 200" in lines[0]


@pytest.mark.thorough
def test_the_command_serves_over_standard_input(index: Path, pipeline: Pipeline) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ragqa", "mcp", "--index", str(index)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    (answer,) = map(read, call(command, ("ask", {"question": QUESTION})))
    assert answer["answer"] == pipeline.ask(QUESTION).text
