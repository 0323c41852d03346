"""Chat completions and models for clients of OpenAI's API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from tests.helpers.serving import WritingPipeline, open_client, open_server, read_events

QUESTION = "Who built Skarvik Lighthouse?"
FIRST_LINE = "Ada Holm [1]"


@pytest.fixture(scope="module")
def pipeline(index: Path) -> Pipeline:
    return Pipeline.load(index)


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Any]:
    with open_client({"documents": pipeline}) as client:
        yield client


def complete(client: Any, *messages: str | list[Any], **options: Any) -> Any:
    """Send messages of the user and the assistant in turn, and return the response."""
    roles = ("user", "assistant")
    rows = [{"role": roles[number % 2], "content": message} for number, message in enumerate(messages)]
    return client.post("/v1/chat/completions", json={"model": "documents", "messages": rows, **options})


def test_a_completion_has_the_answer_and_annotations_that_lead_to_it(client: Any, folder: Path) -> None:
    row = complete(client, QUESTION, temperature=0.7, tools=[], user="x").json()
    assert row["object"] == "chat.completion" and row["model"] == "documents" and row["id"].startswith("chatcmpl-")
    (choice,) = row["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "stop" and message["role"] == "assistant"
    assert message["content"].startswith(f"{FIRST_LINE}\n\nConfidence 0.")
    citation = message["annotations"][0]["url_citation"]
    assert message["annotations"][0]["type"] == "url_citation" and citation["title"] == "Skarvik Lighthouse"
    assert message["content"][citation["start_index"] : citation["end_index"]] == "[1]"
    address = urlsplit(citation["url"])
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert (address.scheme, address.netloc, address.path) == ("http", "testserver", "/")
    text = (folder / "lighthouse.md").read_text()
    assert text[int(query["start"]) : int(query["end"])] == "Ada Holm" and query["index"] == "documents"
    found = client.get("/documents/" + query["document"].replace("/", "%2F"), params=query)
    assert found.status_code == 200


def test_chunks_have_the_text_of_the_completion(client: Any) -> None:
    whole = complete(client, QUESTION).json()["choices"][0]["message"]
    reply = complete(client, QUESTION, stream=True, stream_options={"include_usage": True})
    *chunks, (_, done) = read_events(reply.text)
    rows = [row for _, row in chunks]
    assert done == "[DONE]" and {row["object"] for row in rows} == {"chat.completion.chunk"}
    assert len({row["id"] for row in rows}) == 1 and rows[-1]["choices"] == [] and "usage" in rows[-1]
    deltas = [row["choices"][0]["delta"] for row in rows[:-1]]
    assert deltas[0]["role"] == "assistant" and rows[-2]["choices"][0]["finish_reason"] == "stop"
    assert "".join(delta.get("content", "") for delta in deltas) == whole["content"]
    assert [a for delta in deltas for a in delta.get("annotations", [])] == whole["annotations"]


def test_the_last_question_refers_to_the_messages_before_it(client: Any) -> None:
    first = complete(client, QUESTION).json()["choices"][0]["message"]["content"]
    content = complete(client, QUESTION, first, "How tall is it?").json()["choices"][0]["message"]["content"]
    assert content.startswith("34 metres [1]") and content.endswith("Asked as: How tall is Skarvik Lighthouse?")


def test_contents_can_have_several_parts(client: Any) -> None:
    parts = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "http://x"}}]
    assert complete(client, parts).json()["choices"][0]["message"]["content"].startswith(FIRST_LINE)


def test_system_messages_do_not_count(client: Any) -> None:
    rows = [{"role": "system", "content": "Be rude."}, {"role": "user", "content": QUESTION}]
    reply = client.post("/v1/chat/completions", json={"model": "documents", "messages": rows})
    assert reply.json()["choices"][0]["message"]["content"].startswith(FIRST_LINE)


def test_a_declined_question_says_so_in_words(client: Any) -> None:
    message = complete(client, "Who won the chess tournament of Reykjavik in 1957?").json()["choices"][0]["message"]
    assert message["content"].startswith("These documents do not answer the question: the best has confidence")
    assert "Best guess:" in message["content"] and "The nearest passages:" in message["content"]
    cited = [
        message["content"][c["start_index"] : c["end_index"]]
        for a in message["annotations"]
        for c in [a["url_citation"]]
    ]
    assert cited == ["[1]", "[2]", "[3]"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "gpt-4o", "messages": [{"role": "user", "content": "a"}]}, 404, "there is no index 'gpt-4o'"),
        ({"model": "documents", "messages": []}, 400, "messages: List should have at least 1 item"),
        ({"model": "documents", "messages": [{"role": "system", "content": "a"}]}, 400, "the last message of the user"),
        ({"model": "documents", "messages": [{"role": "user", "content": " "}]}, 400, "the last message of the user"),
        ({"model": "documents", "messages": [{"role": "user", "content": None}]}, 400, "the last message of the user"),
        ({"messages": [{"role": "user", "content": "a"}]}, 400, "model: Field required"),
        ({"model": "documents", "messages": [{"role": "user", "content": "a"}], "n": 2}, 400, "n: Input should be"),
    ],
)
def test_bad_requests_say_what_is_wrong(client: Any, body: Any, status: int, message: str) -> None:
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == status and message in reply.json()["error"]["message"]


def test_indexes_are_models(client: Any) -> None:
    row = client.get("/v1/models").json()
    assert row["object"] == "list" and [model["id"] for model in row["data"]] == ["documents"]
    assert row["data"][0]["object"] == "model"
    assert client.get("/v1/models/documents").json() == row["data"][0]
    for name in ("gpt-4o", "meta%2Fllama"):
        reply = client.get(f"/v1/models/{name}")
        assert reply.status_code == 404 and reply.json()["error"]["type"] == "not_found_error"
        assert reply.json()["error"]["message"].endswith("choose one of documents")


@pytest.mark.thorough
def test_the_client_of_openai_asks_streams_and_reads_errors(pipeline: Pipeline) -> None:
    openai = pytest.importorskip("openai")
    token = "a-token-of-the-tests"
    with open_server({"documents": pipeline}, token=token) as port:
        address = f"http://127.0.0.1:{port}/v1"
        with openai.OpenAI(base_url=address, api_key=token, max_retries=0) as client:
            assert [model.id for model in client.models.list()] == ["documents"]
            assert client.models.retrieve("documents").id == "documents"
            with pytest.raises(openai.NotFoundError, match="there is no index 'gpt-4o'"):
                client.models.retrieve("gpt-4o")
            messages: list[Any] = [{"role": "user", "content": QUESTION}]
            message = client.chat.completions.create(model="documents", messages=messages).choices[0].message
            assert message.content.startswith(FIRST_LINE)
            citation = message.annotations[0].url_citation
            assert message.content[citation.start_index : citation.end_index] == "[1]"
            stream = client.chat.completions.create(model="documents", messages=messages, stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == message.content
            messages += [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": "How tall is it?"},
            ]
            follow_up = client.chat.completions.create(model="documents", messages=messages).choices[0].message
            assert follow_up.content.startswith("34 metres [1]")
            with pytest.raises(openai.NotFoundError, match="there is no index 'gpt-4o'"):
                client.chat.completions.create(model="gpt-4o", messages=messages)
            with pytest.raises(openai.BadRequestError, match="at least 1 item"):
                client.chat.completions.create(model="documents", messages=[])
        with (
            openai.OpenAI(base_url=address, api_key="another", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError, match="the token is missing or wrong"),
        ):
            client.models.list()


def test_an_error_in_a_stream_ends_it(pipeline: Pipeline) -> None:
    from ragqa.errors import BadInput

    with open_client({"documents": WritingPipeline(pipeline, BadInput("the model is gone"))}) as client:
        events = read_events(complete(client, QUESTION, stream=True).text)
        assert events[-1][1] == "[DONE]" and "the model is gone" in json.dumps(events[-2][1]["error"])
