"""Answers and gold passages that the corpus lacks."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.errors import SlowPattern
from ragqa.evaluation import evaluate
from ragqa.evaluation.corpus_coverage import find_missing
from ragqa.evaluation.rows import Row, Rule, SystemResult, score_result
from ragqa.metrics import has_answer
from ragqa.pipeline import Pipeline
from ragqa.types import Answer, Question
from tests.helpers.evaluation import ANSWERS, FixedReader, FixedRetriever, make_hits, write_store

pytestmark = pytest.mark.usefixtures("without_plots")


TEXTS = st.text(alphabet="ab ÁáΣςσ.-\u0301\u00a0é", min_size=0, max_size=8)


def score_unanswered(number: int, question: Question) -> Row:
    return score_result(number, question, SystemResult(Answer("", None, 0.0, 0.0), [], []), Rule())


@given(texts=st.lists(TEXTS, min_size=1, max_size=8), answers=st.lists(st.lists(TEXTS, max_size=3), max_size=6))
@settings(max_examples=60)
@pytest.mark.parametrize("regex", [False, True])
def test_answers_missing_in_the_corpus_are_those_in_no_passage(
    tmp_path_factory: pytest.TempPathFactory, regex: bool, texts: list[str], answers: list[list[str]]
) -> None:
    questions = [Question("?", tuple(each)) for each in answers]
    rows = [score_unanswered(number, question) for number, question in enumerate(questions)]
    expected = {
        n
        for n, q in enumerate(questions)
        if q.answers and not any(has_answer(t, q.answers, regex=regex) for t in texts)
    }
    found = find_missing(write_store(tmp_path_factory.mktemp("store"), texts), rows, regex=regex)
    assert found.answers == expected and not found.passages and not found.documents


def test_a_slow_pattern_in_the_corpus_is_named_with_its_question(tmp_path: Path) -> None:
    questions = [Question("a?", ("nowhere",), "1"), Question("b?", (r"([a-z ]+)*keeper\d",), "2")]
    rows = [score_unanswered(number, question) for number, question in enumerate(questions)]
    store = write_store(tmp_path / "store", ["short", "the lighthouse keeper of " * 40])
    with pytest.raises(SlowPattern, match=r"keeper\\\\d' of question 2 takes more than 1 s"):
        find_missing(store, rows, regex=True)


def test_gold_passages_missing_in_the_corpus_are_not_scored(tmp_path: Path) -> None:
    """A corpus with other blocks has no gold passage, and 0 % would say nothing about the retriever."""
    passages = write_store(tmp_path / "store", ["Ada Holm  came first.", "y"])
    questions = [
        Question("who is first?", ("Ada Holm",), passages=("Ada Holm came\nfirst.",)),
        Question("who is third?", ("Cy",), passages=("somewhere else",)),
    ]
    found = FixedRetriever({q.text: make_hits("x", "y") for q in questions})
    found.passages = passages  # type: ignore[attr-defined]
    report = evaluate(Pipeline(found, FixedReader(ANSWERS)), questions, out=tmp_path / "r")
    gold = report.figures["gold_passage"]
    assert (gold["questions"], gold["in_corpus"], gold["mrr"]) == (2, 1, 0.0)
    only = evaluate(Pipeline(found, FixedReader(ANSWERS)), questions[1:], out=tmp_path / "r2").figures["gold_passage"]
    assert (only["in_corpus"], only["accuracy"]) == (0, None)


def test_a_right_answer_without_a_passage_raises_the_bound(tmp_path: Path) -> None:
    """Exact match forgives punctuation, has-answer does not."""
    found = FixedRetriever({"who is first?": make_hits("Holm, Ada")})
    found.passages = write_store(tmp_path / "store", ["Holm, Ada"])  # type: ignore[attr-defined]
    report = evaluate(
        Pipeline(found, FixedReader({"who is first?": ("Holm, Ada", 0.5)})),
        [Question("who is first?", ("Holm Ada",))],
        out=tmp_path / "r",
    )
    assert report.em == 1.0 and report.figures["coverage_bound"] == {"corpus": 1.0, "retrieved": 1.0}
