"""A chat reader under several threads: of a program, and of a server whose clients leave."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ragqa.errors import RemoteError
from ragqa.pipeline import Pipeline
from ragqa.reading.chat import local_model
from ragqa.reading.chat.local_model import LocalModel
from ragqa.reading.chat.server import ChatServer
from ragqa.types import Answer
from tests.helpers.chat_server import MODEL, Response, run_chat_server, say, say_json

QUESTIONS = ["Who built Skarvik Lighthouse?", "What is rye bread made of?", "How tall is Skarvik Lighthouse?"]
MESSAGES = [{"role": "user", "content": "Who?"}]
WAIT = 20.0
"""Seconds after which a test counts as one that hangs."""


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("RAGQA_CHAT_KEY", raising=False)


def run_together(count: int, work: Any) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return [future.result(WAIT) for future in [pool.submit(work, number) for number in range(count)]]


def answer_question(body: dict[str, Any]) -> Response:
    prompt = body["messages"][-1]["content"]
    time.sleep(0.05)
    return say("It is made of rye [1]." if prompt.endswith("What is rye bread made of?") else "Ada Holm built it [1].")


def test_threads_get_the_answers_of_one_thread(index: Path) -> None:
    with run_chat_server(answer_question) as server:
        pipeline = Pipeline.load(index, reader=f"chat:{server.url}#{MODEL}")
        alone = [pipeline.ask(question, min_confidence=0) for question in QUESTIONS]
        fresh = Pipeline.load(index, reader=f"chat:{server.url}#{MODEL}")
        together = run_together(9, lambda number: fresh.ask(QUESTIONS[number % 3], min_confidence=0))
    assert [answer.text for answer in alone] == ["Ada Holm built it.", "It is made of rye.", "Ada Holm built it."]
    assert together == alone * 3


def test_a_setting_that_a_model_refuses_is_left_out_by_all_threads() -> None:
    barrier = threading.Barrier(4)

    def refuse(body: dict[str, Any]) -> Response:
        for name, line in (("max_tokens", "use 'max_completion_tokens' instead"), ("temperature", "temperature: no")):
            if name in body:
                barrier.wait(WAIT)  # every thread has sent the setting before one of them leaves it out
                return say_json({"error": {"message": line}}, 400)
        return say("Yes.")

    with run_chat_server(refuse) as server:
        model = ChatServer(server.url, MODEL)
        assert run_together(4, lambda _: "".join(model.write(MESSAGES, 9))) == ["Yes."] * 4


def test_threads_wait_for_the_name_and_the_context_of_the_model() -> None:
    def list_models() -> dict[str, Any]:
        time.sleep(0.3)
        return {"data": [{"id": MODEL, "max_model_len": 3000}]}

    with run_chat_server(say("Yes."), facts={"/v1/models": list_models}) as server:
        model = ChatServer(server.url)
        assert run_together(4, lambda _: model.find_context()) == [3000] * 4
        assert [request.path for request in server.received] == ["/v1/models"]
        model = ChatServer(server.url)
        assert run_together(4, lambda _: "".join(model.write(MESSAGES, 9))) == ["Yes."] * 4
        assert {request.body["model"] for request in server.received if request.body} == {MODEL}


def test_a_server_that_starts_later_is_described_then() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = ChatServer(f"http://127.0.0.1:{port}/v1")
    assert model.find_context() is None
    facts = {"/v1/models": {"data": [{"id": MODEL, "max_model_len": 3000}]}}
    with run_chat_server(say("Yes."), facts=facts, port=port):
        assert model.find_context() == 3000 and model.name == f"{MODEL} at 127.0.0.1"


class FakeLlama:
    """Model in memory that fails if it writes two replies at the same time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.is_writing, self.metadata = False, {"x.context_length": "64"}

    def create_chat_completion(self, messages: Any, **_: Any) -> Iterator[dict[str, Any]]:
        assert not self.is_writing
        self.is_writing = True
        for text in ("a", "b"):
            time.sleep(0.01)
            yield {"choices": [{"delta": {"content": text}, "finish_reason": None}]}
        self.is_writing = False

    def tokenize(self, text: bytes, **_: Any) -> list[int]:
        assert not self.is_writing
        return list(text)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=FakeLlama))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    return LocalModel(tmp_path / "m.gguf")


def test_a_local_model_writes_one_reply_after_the_other(local: LocalModel) -> None:
    def work(number: int) -> str:
        assert local.find_context() == 64 and local.count_tokens("ab") == 2
        return "".join(local.write(MESSAGES, 9))

    assert run_together(8, work) == ["ab"] * 8


def test_a_reply_that_is_not_read_to_its_end_holds_others_only_until_it_is_closed(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_model, "MAX_WAIT", 0.1)
    writing = local.write(MESSAGES, 9)
    assert next(writing) == "a"
    with pytest.raises(RemoteError, match="writes another reply: read or close that one first"):
        local.count_tokens("a")
    writing.close()
    local._llama.is_writing = False
    assert local.count_tokens("a") == 1


class TakingTurns:
    """Pipeline whose language model writes one reply at a time, as one in a file does."""

    can_stream = True

    def __init__(self) -> None:
        self._turn, self.may_end = threading.Lock(), threading.Event()

    def stream_answer(self, retrieved: str, **_: Any) -> Iterator[str | Answer]:
        if not self._turn.acquire(timeout=WAIT):  # a lock without end would keep Python from ending
            raise TimeoutError
        try:
            yield retrieved
            self.may_end.wait(WAIT)
        finally:
            self._turn.release()
        yield Answer(retrieved, retrieved, 1.0, 1.0)


def test_clients_that_leave_while_they_wait_for_a_model_hold_no_thread_of_others() -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    from ragqa.serve.work import STREAMS, ServedIndex, Work

    pipeline: Any = TakingTurns()

    async def main() -> list[Answer]:
        work = Work({"a": pipeline})
        index = ServedIndex("a", pipeline)
        first: Any = work.stream(index, "first", None)  # type: ignore[arg-type]
        assert await anext(first) == "first"  # it holds the turn of the model
        for _ in range(3):
            leaving = [asyncio.create_task(work.answer(index, "x", None)) for _ in range(STREAMS)]  # type: ignore
            await asyncio.sleep(0.05)
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
        later = asyncio.create_task(work.answer(index, "later", None))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        pipeline.may_end.set()
        return [await anext(first), await later]

    answers = asyncio.run(asyncio.wait_for(main(), WAIT / 2))
    assert [answer.text for answer in answers] == ["first", "later"]
