"""Training questions never include held-out questions."""

import json
from pathlib import Path

import pytest

from pipelines.common.config import HeldOutConfig
from pipelines.common.questions import read_training_questions
from ragqa.errors import BadInput


def write_questions(file: Path, *texts: str) -> Path:
    file.write_text("".join(json.dumps({"question": text, "answer": ["a"]}) + "\n" for text in texts))
    return file


def test_held_out_questions_are_not_trained_on(tmp_path: Path) -> None:
    """Case, punctuation and articles do not matter, nor whether the sample has the question."""
    training = write_questions(tmp_path / "train.jsonl", "who was first", "Who was the second?", "who was third")
    dev = write_questions(tmp_path / "dev.jsonl", "who was second", "who is it")
    lines: list[str] = []
    training_questions, sample = read_training_questions(training, HeldOutConfig(dev=dev, sample=1), 0, lines.append)
    assert [question.text for question in training_questions] == ["who was first", "who was third"] and len(sample) == 1
    assert lines == [f"left out, because also in {dev}: 1 question of {training}"]
    assert [len(part) for part in read_training_questions(training, HeldOutConfig(), 0, lines.append)] == [3, 0]
    with pytest.raises(BadInput, match=r"all questions of .* are also in .*: choose other held-out questions"):
        read_training_questions(training, HeldOutConfig(dev=training), 0, lines.append)
