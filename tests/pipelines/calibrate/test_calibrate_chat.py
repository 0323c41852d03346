"""Calibration of a language model's answers, over a server with recorded replies."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.calibrate.chat import ChatCalibrateConfig, fit_chat, run_chat_calibration
from ragqa.errors import BadInput
from ragqa.reading.chat.confidence import ChatEvidence, load_chat_calibration
from ragqa.reading.chat.reader import ChatReader
from tests.helpers.chat_server import MODEL, run_chat_server, say

RIGHT = ChatEvidence(span_confidence=0.8, agrees=True, share_supported=1.0, share_cited=1.0, words=4)
WRONG = ChatEvidence(span_confidence=0.2, agrees=False, share_supported=0.5, share_cited=0.0, words=30)


def test_supported_and_agreed_answers_become_more_confident() -> None:
    rows = [(RIGHT, True)] * 18 + [(WRONG, True)] * 2 + [(RIGHT, False)] * 2 + [(WRONG, False)] * 18
    result = fit_chat(rows, [], "a test")
    right, wrong = (result.calibration.compute_confidence(evidence) for evidence in (RIGHT, WRONG))
    assert right == pytest.approx(0.9, abs=0.03) and wrong == pytest.approx(0.1, abs=0.03)
    # 2 of the 20 right answers have a low confidence, so that a threshold above it would decline 10 % of them
    assert result.calibration.threshold <= wrong + 0.02
    assert np.all((result.confidence > 0) & (result.confidence < 1))


def test_answers_to_unanswerable_questions_are_wrong_and_count_less() -> None:
    rows = [(RIGHT, True)] * 20 + [(WRONG, False)] * 20
    alone, both = fit_chat(rows, [], "a"), fit_chat(rows, [(RIGHT, True)] * 40, "b")
    assert both.calibration.compute_confidence(RIGHT) < alone.calibration.compute_confidence(RIGHT)
    assert both.calibration.compute_confidence(RIGHT) == pytest.approx(20 / 24, abs=0.05)


def test_a_calibration_needs_right_and_wrong_answers() -> None:
    with pytest.raises(BadInput, match="40 answers are right and 3 are wrong, but a calibration needs 10 of each"):
        fit_chat([(RIGHT, True)] * 40 + [(WRONG, False)] * 3, [], "a")


def test_the_command_saves_a_calibration_that_the_reader_finds(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("RAGQA_CHAT_KEY", raising=False)
    questions = tmp_path / "questions.jsonl"
    row = json.dumps({"question": "Who built Skarvik Lighthouse?", "answers": ["Ada Holm"]})
    questions.write_text(f"{row}\n" * 22)
    replies = [say("Ada Holm built it [1]."), say("Otto Brandt built it [1].")] * 11
    with run_chat_server(*replies, say("Otto Brandt [1]")) as recording:
        source = f"{recording.url}#{MODEL}"
        config = ChatCalibrateConfig(reader=f"chat:{source}", questions=questions, index=index, without=2)
        calibration, line = run_chat_calibration(config)
    assert "24 answers, 11 of them right" in line
    assert load_chat_calibration(source) == (calibration, True)
    assert ChatReader.load(source).threshold == calibration.threshold
    questions = "22 questions of questions.jsonl and 2 of them again, documents with an answer left out"
    assert f"{source}: {questions}, k = 20" == calibration.fitted_on


@pytest.mark.parametrize("reader", ["span:x", "chat:", "somewhere"])
def test_other_readers_are_refused(reader: str) -> None:
    with pytest.raises(BadInput):
        ChatCalibrateConfig(reader=reader, questions=Path("q"), index=Path("i"))
