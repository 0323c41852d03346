"""Calibration: figures and thresholds by hand, the conditions of questions, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.calibrate import fit as calibrate
from pipelines.calibrate.__main__ import main
from pipelines.calibrate.conditions import (
    ANSWERABLE,
    MISSED,
    NO_GOLD_ANSWER,
    OWN_PARAGRAPH,
    UNANSWERABLE,
    CalibrationSet,
    build_paragraph_index,
    classify_question,
    judge_by_agreement,
    judge_exactly,
    search_other_documents,
    search_passages,
)
from pipelines.calibrate.config import SELECTION_SAMPLE, SELECTION_SEED, CalibrateConfig
from pipelines.calibrate.fit import (
    CalibrationRow,
    balance_files,
    measure_likelihood,
    select_questions,
)
from pipelines.calibrate.report import summarise_answers
from pipelines.common.examples.data_sets import HELD_OUT_SHARE, is_held_out, make_gold_hits, split_held_out
from pipelines.common.questions import read_answerable
from pipelines.span_reader import loop as span_reader
from pipelines.span_reader.config import ReaderConfig
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.evaluation.statistics import compute_calibration_error, compute_refusal_rates
from ragqa.metrics import has_answer
from ragqa.question_files import read_questions, read_squad
from ragqa.reading.calibration import Calibration, Evidence
from ragqa.reading.span import SpanAnswer
from ragqa.settings.groups import make_config
from ragqa.types import Hit, Passage, Question
from tests.helpers import towns


def make_hit(number: int, title: str, text: str) -> Hit:
    return Hit(Passage(number, str(number), title, text, "", 0, len(text)), float(-number))


def test_refusal_rates_by_hand() -> None:
    thresholds, below = compute_refusal_rates([0.1, 0.4, 0.4, 0.9], [0.3, 0.4, 0.95])
    assert thresholds.tolist() == [0.1, 0.4, 0.9, np.inf]
    assert below.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert compute_refusal_rates([0.5], [])[1].tolist() == [0, 0]


NQ = Path("nq.jsonl")
KIND = np.array([ANSWERABLE] * 5 + [MISSED] + [UNANSWERABLE] * 4)
CONFIDENCES = np.array([0.9, 0.8, 0.7, 0.6, 0.2, 0.5, 0.1, 0.3, 0.15, 0.65])
RIGHT = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0.0])


def test_figures_of_a_calibration_by_hand() -> None:
    """Five answerable questions, of which the three surest are right, one missed and four unanswerable questions."""
    figures = summarise_answers(CONFIDENCES, RIGHT, KIND)
    assert figures["answers"] == {ANSWERABLE: 5, MISSED: 1, UNANSWERABLE: 4, NO_GOLD_ANSWER: 0}
    # Of the six questions as asked, three are right. The surer half is right, which is the best possible.
    assert figures["em"] == 0.5 and figures["em_at_half_coverage"] == 1.0
    assert figures["times_em"] == 2.0 == figures["times_em_at_most"]
    assert figures["calibration_error"][UNANSWERABLE] == pytest.approx((0.1 + 0.3 + 0.15 + 0.65) / 4)
    assert figures["calibration_error"][MISSED] == 0.5 == figures["mean_confidence"][MISSED]
    assert figures["calibration_error"]["as_asked"] == round(compute_calibration_error(CONFIDENCES[:6], RIGHT[:6]), 4)
    # Below 0.2 lie two unanswerable and no answerable questions; below 0.7 all unanswerable and no right answers.
    shares = figures["refusals"]["unanswerable_declined_at_5_percent_of"]
    assert shares == {"answerable": 0.5, "right_answers": 1.0}
    curve = np.array(figures["refusals"]["curve"])
    assert curve[0].tolist() == [0.1, 0, 0, 0] and curve[-1].tolist() == [1, 1, 1, 1]
    assert (np.diff(curve, axis=0) >= 0).all()
    assert [0.65, 0.4, 0.0, 0.75] in curve.tolist()
    assert json.loads(json.dumps(figures)) == figures


def test_near_misses_have_figures_of_their_own() -> None:
    """A question without a gold answer counts as wrong among the questions as asked."""
    kind = np.array([ANSWERABLE, NO_GOLD_ANSWER, NO_GOLD_ANSWER])
    figures = summarise_answers(np.array([0.9, 0.2, 0.4]), np.array([1, 0, 0.0]), kind)
    assert figures["answers"][NO_GOLD_ANSWER] == 2 and figures["calibration_error"][NO_GOLD_ANSWER] == pytest.approx(
        0.3
    )
    assert figures["em"] == round(1 / 3, 4)


def test_no_confidence_surpasses_the_limit() -> None:
    """Two of three answers are right, so a surer half can have 1.5 times the share of right answers."""
    figures = summarise_answers(np.array([0.1, 0.2, 0.3]), np.array([1, 1, 0.0]), np.array([ANSWERABLE] * 3))
    assert figures["times_em_at_most"] == 1.5 > figures["times_em"] and figures["refusals"] is None


class FixedRetriever:
    def search(self, questions: list[str], k: int) -> list[list[Hit]]:
        hits = [
            make_hit(0, "Oslo", "Oslo is old"), make_hit(1, "Fjords", "near Oslo"), make_hit(2, "Fjords", "deep water"),
            make_hit(3, "Bergen", "rain"), make_hit(4, "Oslo", "a tram"), make_hit(5, "Trondheim", "a church"),
        ]  # fmt: skip
        return [hits[:k] for _ in questions]


def test_unanswerable_questions_get_no_passage_of_their_documents() -> None:
    """Two questions with the same words can have different documents."""
    questions = [
        Question("which?", ("tram",), titles=("Bergen",)),
        Question("where?", ("Oslo",)),
        Question("which?", ("tram",), titles=("Trondheim",)),
    ]
    rankings = search_other_documents(FixedRetriever(), 2)(questions)
    assert [[hit.passage.id for hit in hits] for hits in rankings] == [[1, 2], [3, 5], [1, 2]]
    deeper = search_other_documents(FixedRetriever(), 4)(questions)
    assert [[hit.passage.id for hit in hits] for hits in deeper[::2]] == [[1, 2, 5], [1, 2, 3]]


def test_questions_are_classified_by_their_passages() -> None:
    question = Question("where?", ("Oslo",), passages=("It is Oslo.",), titles=("Oslo",))
    hits = search_passages(FixedRetriever(), 3)([question])[0]
    assert [hit.passage.id for hit in hits] == [0, 1, 2]
    assert classify_question(hits, question, is_unanswerable=False) == ANSWERABLE
    assert (
        classify_question(hits[2:], question, is_unanswerable=False)
        == MISSED
        == classify_question([], question, is_unanswerable=False)
    )
    assert classify_question(hits[2:], question, is_unanswerable=True) == UNANSWERABLE
    assert [(each.passage.title, each.passage.text) for each in make_gold_hits([question])[0]] == [("", "It is Oslo.")]


def make_answers(*answers: tuple[str, float]) -> list[SpanAnswer]:
    return [SpanAnswer(text, [], Evidence(weight, 0, 0)) for text, weight in answers]


def test_agreement_with_two_more_annotators_by_hand() -> None:
    """Half of the weight 0.8 near the gold answer is on "Aldo"; both other annotators differ with probability 1/4."""
    answers = make_answers(("Aldo", 0.4), ("the Duke Aldo", 0.2), ("old Duke Aldo", 0.2), ("1500", 0.15))
    assert judge_by_agreement(answers, ["Duke Aldo"]) == pytest.approx([0.75, 1.0, 1 - 0.75**2, 0.0])
    assert judge_by_agreement(answers[3:], ["Duke Aldo"]) == [0.0]
    assert judge_exactly(answers, ["Duke Aldo"]) == [0.0, 1.0, 0.0, 0.0]


def test_the_likelihood_counts_answerable_questions_over_an_index() -> None:
    def row(kind: str, likely: float) -> CalibrationRow:
        return CalibrationRow(NQ, "nq", 0, kind, Evidence(0.5, 0, 0), right=True, log_likelihood=likely)

    rows = [row(ANSWERABLE, -1), row(ANSWERABLE, -2), row(MISSED, -9), row(UNANSWERABLE, -9)]
    assert measure_likelihood(rows) == -1.5
    with pytest.raises(BadInput, match="there is nothing to fit"):
        measure_likelihood(rows[2:])
    few = replace(row(ANSWERABLE, -10), weight=0.25)
    assert measure_likelihood([*rows, few]) == pytest.approx((-1 - 2 - 0.25 * 10) / 2.25)
    alone = replace(row(ANSWERABLE, -7), name=OWN_PARAGRAPH, file=Path("squad.json"))
    assert measure_likelihood([*rows, alone]) == -1.5, "a paragraph of its own does not depend on retrieval"
    assert measure_likelihood([alone]) == -7


def test_the_likelihood_of_a_question_by_hand() -> None:
    """Right answers have the weights 0.5 and 0.1; the best answer is wrong."""
    held_out = CalibrationSet(NQ, "nq", [], make_gold_hits, judge_exactly)
    answers, question = make_answers(("x", 0.3), ("b", 0.5), ("c", 0.1)), Question("?", ("b", "c"))
    row = calibrate._make_row(held_out, 4, question, [make_hit(0, "", "b")], answers)
    assert (row.name, row.number, row.kind, row.right, row.is_shallow) == ("nq", 4, ANSWERABLE, 0, False)
    assert row.log_likelihood == pytest.approx(np.log(0.6)) and row.evidence.weight == 0.3
    shallow = calibrate._mark_shallow(row, 3)
    assert (shallow.name, shallow.is_shallow, row.weight, shallow.weight) == ("nq, first 3", True, 1, 0.25)
    assert calibrate._make_row(held_out, 4, question, [make_hit(0, "", "b")], answers[1:]).right == 1
    unanswerable = replace(held_out, is_unanswerable=True, weight=0.1)
    row = calibrate._make_row(unanswerable, 4, question, [make_hit(0, "", "b")], answers[1:])
    assert (row.right, row.weight, calibrate._mark_shallow(row, 1).weight) == (0, 0.1, 0.025)


def test_an_index_of_other_paragraphs_is_refused(tmp_path: Path) -> None:
    squad = towns.write(tmp_path)[0]
    paragraphs, out = list(read_squad(squad))[:3], tmp_path / "squad.index"
    assert build_paragraph_index(paragraphs, out, "bm25") == build_paragraph_index(paragraphs, out, "bm25") == out
    for others, retriever in ((paragraphs[:2], "bm25"), (paragraphs, "hybrid")):
        with pytest.raises(BadInput, match="is not an index of these paragraphs"):
            build_paragraph_index(others, out, retriever)
    assert build_paragraph_index(paragraphs, out, "bm25") == out


def test_files_next_to_an_index_of_paragraphs_are_kept(tmp_path: Path) -> None:
    for name in ("squad.jsonl", "squad.new.jsonl"):
        (tmp_path / name).write_text("mine")
    build_paragraph_index(list(read_squad(towns.write(tmp_path)[0]))[:3], tmp_path / "squad.index", "bm25")
    assert [(tmp_path / name).read_text() for name in ("squad.jsonl", "squad.new.jsonl")] == ["mine", "mine"]


def test_the_defaults_leave_out_the_questions_that_selected_the_shipped_weights() -> None:
    recipe = json.loads(Path(span_reader.__file__).with_name("recipe.json").read_text())
    recipe = make_config(ReaderConfig, encoder=Path(), out=Path(), train=(Path("x"),) * 6, **recipe)
    assert recipe.sample == SELECTION_SAMPLE and recipe.seed == SELECTION_SEED and recipe.held_out == HELD_OUT_SHARE


def test_files_have_equal_weight() -> None:
    """The first file has three answers, one of them to an unanswerable question; the second file has one."""
    one = CalibrationRow(NQ, "nq", 0, ANSWERABLE, Evidence(0.5, 0, 0), right=True, log_likelihood=0.0)
    rows = [one, one, replace(one, kind=UNANSWERABLE, weight=0.1), replace(one, file=Path("squad.json"))]
    assert balance_files(rows).tolist() == pytest.approx([2, 2, 0.2, 4])


def test_questions_that_selected_the_weights_do_not_calibrate(tmp_path: Path) -> None:
    squad, dev = towns.write(tmp_path)
    held_out = [question for question in read_questions(squad) if is_held_out(question.titles[0], HELD_OUT_SHARE)]
    assert len(held_out) == towns.HELD_OUT * towns.QUESTIONS_PER_ARTICLE
    selection, rest = split_held_out(held_out, 10, 3)
    assert len(selection) == 10 and sorted(held_out, key=str) == sorted([*selection, *rest], key=str)
    assert [held_out.index(each) for each in selection] == sorted(held_out.index(each) for each in selection)
    assert split_held_out(held_out, 10, 3) == (selection, rest) != split_held_out(held_out, 10, 4)
    assert split_held_out(held_out, 100, 3) == (held_out, [])
    for count, seed in ((7, 0), (20, 5)):  # training samples its held-out questions in the same way
        assert split_held_out(read_answerable(dev), count, seed)[0] == read_answerable(dev, count, seed)
    folders = {"reader": tmp_path, "work": tmp_path, "out": tmp_path / "figures.json", "squad": squad}
    config = CalibrateConfig(selection_sample=10, seed=3, count=5, **folders)
    assert select_questions(held_out, config, squad) == rest[:5]
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps({"question": rest[1].text.upper(), "answers": ["x"]}))
    config = replace(config, exclude=(test,))
    excluded_text = rest[1].text
    assert select_questions(held_out, config, squad) == [each for each in rest if each.text != excluded_text][:5]


def test_a_reader_with_torch_weights_is_exported_first(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    config = CalibrateConfig(reader=tmp_path, work=tmp_path, out=tmp_path / "figures.json", squad=tmp_path / "x.json")
    with pytest.raises(BadInput, match=r"has torch weights: make an export of it with ragqa export"):
        calibrate.run_calibration(config, "")


@pytest.mark.thorough
def test_questions_of_other_files_are_far_from_own_documents(tmp_path: Path) -> None:
    squad, dev = towns.write(tmp_path)
    index = build_paragraph_index(list(read_squad(squad)), tmp_path / "own.index")
    files = {"questions": dev, "index": index, "own_questions": dev, "own_index": index}
    paths = {"reader": tmp_path / "reader", "work": tmp_path / "work", "out": tmp_path / "figures.json"}
    *_, own, far = calibrate.make_sets(CalibrateConfig(**paths, **files, count=3, selection_sample=2, k=4))
    assert (own.name, own.is_unanswerable, own.weight) == ("own documents", False, 1)
    assert (far.name, far.is_unanswerable, far.weight) == ("own documents", True, 0.5)
    assert len(own.questions) > len(far.questions) == 3
    for question, hits in zip(far.questions, far.condition(far.questions), strict=True):
        assert hits and not any(has_answer(hit.passage.text, question.answers) for hit in hits)


def test_the_command_calibrates_a_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader, (squad, dev) = towns.copy_reader(tmp_path), towns.write(tmp_path)
    options = ["--reader", reader, "--work", tmp_path / "work", "--out", tmp_path / "figures.json", "--count", 20]
    options += ["--selection-sample", 2, "--k", 4]
    index = build_paragraph_index(list(read_squad(squad)), tmp_path / "work" / "squad-train.index")
    both = ["--squad", squad, "--questions", dev, "--index", index, "--plot", tmp_path / "figures.png"]
    card = (reader / "README.md").read_text()
    main([str(part) for part in [*options, *both]])
    figures = json.loads((tmp_path / "figures.json").read_text())
    left_out = "documents with an answer left out"
    squads = f"20 of SQuAD, own paragraph; 20 of SQuAD, all paragraphs; 10 of SQuAD, all paragraphs, {left_out}"
    others = f"20 of dev; 10 of dev, {left_out}"
    assert figures["fitted_on"] == f"questions that training held out: {squads}; {others}; k = 4"
    sets = figures["by_a_fit_on_the_other_half"]
    assert {name: sum(each["answers"].values()) for name, each in sets.items()} == {
        "SQuAD, own paragraph": 20,
        "SQuAD, all paragraphs": 30,
        "SQuAD, all paragraphs, first 3": 30,
        "SQuAD, all paragraphs, first 1": 30,
        "dev": 30,
        "dev, first 3": 30,
        "dev, first 1": 30,
    }
    assert sets["dev"]["answers"][UNANSWERABLE] == 10 and sets["dev"]["em"] > 0.3
    assert (tmp_path / "figures.png").stat().st_size > 10_000
    artefacts.read_manifest(reader, "reader")  # raises unless the manifest is valid
    assert (reader / "README.md").read_text() == card
    saved = Calibration.load(reader)
    assert saved.answers == 200 and list(saved.coefficients) == list(figures["coefficients"].values())
    assert (saved.threshold, saved.prior) == (figures["threshold"], figures["retrieval_weight"])
    assert figures["log_likelihood_of_right_answers"][str(saved.prior)] == max(
        figures["log_likelihood_of_right_answers"].values()
    )
    assert "questions are declined below" in capsys.readouterr().err
    for bad_options, message in (
        (["--questions", dev], "--questions FILE with --index DIR"),
        (
            ["--squad", squad, "--selection-sample", 24],
            "24 (--selection-sample) of 24 held-out questions chose the weights: none is left",
        ),
        (["--squad", squad, "--held-out", 0], "of 0 held-out questions"),
        (["--squad", squad, "--held-out", 2], "held_out = 2.0: out of range (held_out: 0 or more and below 1)"),
        (["--squad", squad, "--count", -4], "count = -4: out of range (count: above 0)"),
        (["--squad", squad, "--count", 3], "a fit needs 10: nothing is installed"),
    ):
        with pytest.raises(SystemExit):
            main([str(part) for part in [*options, *bad_options]])
        error = capsys.readouterr().err
        assert message in error and error.splitlines()[-1].startswith("pipelines.calibrate: ")
    assert Calibration.load(reader) == saved
