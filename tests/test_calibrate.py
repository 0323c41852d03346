"""How sure a reader may be, fitted on questions with and without an answer: the figures, and the command."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipelines.calibrate import Without, figures, index_of, main
from pipelines.confidence import Fitted
from pipelines.reader_examples import SHARE, held_out
from ragqa import artefact
from ragqa.evaluation.statistics import refusals
from ragqa.paths import weights_dir
from ragqa.questions import read_squad
from ragqa.reading.confidence import Calibration
from ragqa.types import Hit, Passage, Question


def hit(number: int, title: str, text: str) -> Hit:
    return Hit(Passage(number, str(number), title, text, "", 0, len(text)), float(-number))


def test_refusals_by_hand() -> None:
    thresholds, below = refusals([0.1, 0.4, 0.4, 0.9], [0.3, 0.4, 0.95])
    assert thresholds.tolist() == [0.1, 0.4, 0.9, np.inf]
    assert below.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert refusals([0.5], [])[1].tolist() == [0, 0]


def test_figures_by_hand() -> None:
    """Five answerable questions, the three most certain ones right, and four that have no answer."""
    said = np.array([0.9, 0.8, 0.7, 0.6, 0.2, 0.1, 0.3, 0.15, 0.65])
    right = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0.0])
    answerable = np.array([True] * 5 + [False] * 4)
    found = figures(Fitted(Calibration((0.0, 1.0, 0.0, 0.0)), said, right), answerable)
    assert found["answers"] == {"answerable": 5, "unanswerable": 4}
    assert found["em_answerable"] == 0.6 and found["em_at_half_coverage"] == 1.0 and found["times_em"] == 1.667
    # Below 0.2 no answerable question is, and two of the others; below 0.7 no right answer is, and all of them are.
    assert found["declined_unanswerable_at_5_percent_of"] == {"answerable_refused": 0.5, "right_answers_refused": 1.0}
    curve = np.array(found["curve"])
    assert curve[0].tolist() == [0.1, 0, 0, 0] and curve[-1].tolist() == [1, 1, 1, 1]
    assert (np.diff(curve, axis=0) >= 0).all()
    assert [row for row in found["curve"] if row[0] == 0.65] == [[0.65, 0.4, 0.0, 0.75]]
    assert found["expected_calibration_error"] == round(Fitted(Calibration((0.0,)), said, right).error, 4)
    assert json.loads(json.dumps(found)) == found


def test_the_documents_of_a_question_are_taken_out() -> None:
    class Finds:
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            found = [
                hit(0, "Oslo", "Oslo is old"), hit(1, "Fjords", "near Oslo"), hit(2, "Fjords", "deep water"),
                hit(3, "Bergen", "rain"), hit(4, "Oslo", "a tram"), hit(5, "Trondheim", "a church"),
            ]  # fmt: skip
            return [found[:k] for _ in questions]

    named = Question("which?", ("tram",), titles=("Bergen",))
    asked = [Question("where?", ("Oslo",)), named]
    left = Without(Finds(), asked).search(["which?", "where?"], 2)
    assert [[each.passage.id for each in hits] for hits in left] == [[1, 2], [3, 5]]


def world(root: Path) -> tuple[Path, Path, Path]:
    """A copy of the default reader, a SQuAD file with held-out articles, and other questions."""
    reader = root / "weights" / "reader"
    shutil.copytree(weights_dir() / "reader", reader)
    (root / "weights" / "encoder").symlink_to(weights_dir() / "encoder")
    towns = [
        f"{first}{last}" for first in ("Val", "Brin", "Tor", "Kel", "Mar", "Os") for last in ("dale", "stad", "holm")
    ]
    held = [name for n in range(2000) if held_out(name := f"{towns[n % 18]} {n}", SHARE)][:6]
    other = [name for n in range(2000) if not held_out(name := f"{towns[n % 18]} {n}", SHARE)][:12]
    articles, asked = [], []
    for number, name in enumerate([*held, *other]):
        text = f"{name} was founded in {1500 + number} by Duke Aldo {number}. It is known for its {number + 3} bridges."
        facts = {
            f"When was {name} founded?": str(1500 + number),
            f"Who founded {name}?": f"Duke Aldo {number}",
            f"How many bridges has {name}?": str(number + 3),
            f"In which year was {name} begun?": f"{number + 3} bridges",  # which is wrong
        }
        golds = {question: [{"text": gold, "answer_start": text.find(gold)}] for question, gold in facts.items()}
        qas = [{"id": f"{number}-{question}", "question": question, "answers": golds[question]} for question in facts]
        articles.append({"title": name, "paragraphs": [{"context": text, "qas": qas}]})
        asked += [{"question": question, "answers": [gold]} for question, gold in facts.items()]
    (root / "squad.json").write_text(json.dumps({"data": articles}))
    (root / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked[4 * len(held) :]))
    return reader, root / "squad.json", root / "dev.jsonl"


def test_the_command_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader, squad, dev = world(tmp_path)
    options = ["--reader", reader, "--work", tmp_path / "work", "--out", tmp_path / "figures.json", "--count", 20]
    options += ["--judged-by", 2, "-k", 3]
    index = index_of(list(read_squad(squad)), tmp_path / "work" / "squad-train.index")
    both = ["--squad", squad, "--questions", dev, "--index", index, "--plot", tmp_path / "figures.png"]
    main([str(part) for part in [*options, *both]])
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["fitted_on"].startswith("20 questions of articles of SQuAD 1.1 train that were held out, 20 ")
    told = found["on_the_half_not_fitted"]
    assert sum(told["answers"].values()) == 30 and told["em_answerable"] > 0.3
    assert (tmp_path / "figures.png").stat().st_size > 10_000
    artefact.read(reader, "reader")  # sealed again
    saved = Calibration.load(reader)
    assert saved.questions == 60 and list(saved.coefficients) == list(found["coefficients"].values())
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([str(part) for part in [*options, "--questions", dev]])
    told_so = capsys.readouterr().err
    assert "--questions FILE with --index DIR" in told_so and told_so.count("\n") == 1
