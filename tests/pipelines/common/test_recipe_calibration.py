"""Questions that calibrate a reader at the end of a recipe."""

import json
from pathlib import Path

import pytest

from pipelines.common import recipe_calibration
from pipelines.common.questions import read_answerable


def test_questions_of_training_and_selection_do_not_calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, numbers in {"train": range(0, 5), "dev": range(3, 23)}.items():
        rows = [{"question": f"Who is the number {n}?", "answers": [str(n)]} for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dev, train = tmp_path / "dev.jsonl", tmp_path / "train.jsonl"
    selection = {question.answers[0] for question in read_answerable(dev, 6, 1)}
    monkeypatch.setattr(recipe_calibration, "MIN_UNSEEN", 10)
    calibration = {question.answers[0] for question in recipe_calibration.select_unseen_questions(dev, train, 6, 1)}
    assert calibration == {str(n) for n in range(5, 23)} - selection and len(selection) == 6
    monkeypatch.setattr(recipe_calibration, "MIN_UNSEEN", 17)  # more than remain without the selection
    assert {q.answers[0] for q in recipe_calibration.select_unseen_questions(dev, train, 6, 1)} == {
        str(n) for n in range(5, 23)
    }
    assert len(recipe_calibration.select_unseen_questions(dev, None, 0, 1)) == 20
