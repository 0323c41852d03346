"""Which questions are trained on, and which are held out."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.common.questions import taught_and_asked
from ragqa.errors import BadInput


@dataclass
class Config:
    questions: Path
    dev: Path | None
    sample: int = 1
    seed: int = 0


def written(file: Path, *texts: str) -> Path:
    file.write_text("".join(json.dumps({"question": text, "answer": ["a"]}) + "\n" for text in texts))
    return file


def test_who_is_held_out_is_not_taught(tmp_path: Path) -> None:
    """Drawn or not; case, punctuation and articles aside."""
    taught = written(tmp_path / "taught.jsonl", "who was first", "Who was the second?", "who was third")
    held = written(tmp_path / "held.jsonl", "who was second", "who is it")
    told: list[str] = []
    teach, ask = taught_and_asked(Config(taught, held), told.append)
    assert [question.text for question in teach] == ["who was first", "who was third"] and len(ask) == 1
    assert told == [f"1 questions of {taught} are asked in {held}, too: left out"]
    assert [len(each) for each in taught_and_asked(Config(taught, None), told.append)] == [3, 0]
    with pytest.raises(BadInput, match=r"all questions of .* are asked in .*, too: hold others out"):
        taught_and_asked(Config(taught, taught), told.append)
