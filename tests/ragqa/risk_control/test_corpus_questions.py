"""Questions about a sample of passages: which passages and answers, and the same for each run."""

from collections import Counter
from pathlib import Path

import pytest

from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.metrics import has_answer
from ragqa.risk_control import corpus_questions
from ragqa.risk_control.corpus_questions import make_corpus_questions
from ragqa.types import Passage

TEXTS = {
    "mill": [
        "The mill of Brenna was built in 1871 by Otto Brandt. The old wheel was repaired in 1903 by Ada Holm.",
        "The new wheel was painted in 1911 by Ilona Varga. The red roof was mended in 1925 by Emil Sandmann.",
    ],
    "bridge": ["The long bridge of Skarvik was opened in 1950 by Lene Marquart. The town has 12 bridges of stone."],
    "tower": ["The white tower of Lyngholm was finished in 1960 by Knud Raske."],
    "bare": ["nothing to ask for here"],
}


@pytest.fixture
def store(tmp_path: Path) -> PassageStore:
    with PassageWriter(tmp_path / "passages") as writer:
        for document, texts in TEXTS.items():
            for text in texts:
                writer.add_passage(Passage(0, document, document, text, f"{document}.md", 0, len(text)))
    return PassageStore.open(tmp_path / "passages")


def test_every_question_names_a_document_with_its_answer(store: PassageStore) -> None:
    questions = make_corpus_questions(store, 100)
    assert len(questions) == len({question.text for question in questions}) > 10
    for question in questions:
        (document,) = question.documents
        assert has_answer(" ".join(TEXTS[document]), question.answers[:1])


def test_documents_and_passages_take_turns(store: PassageStore) -> None:
    """The first three questions are of three documents, the fourth of the other passage of the mill."""
    questions = make_corpus_questions(store, 4)
    assert Counter(question.documents for question in questions[:3]) == {("mill",): 1, ("bridge",): 1, ("tower",): 1}
    assert questions[3].documents == ("mill",)
    of_mill = [question for question in questions if question.documents == ("mill",)]
    places = {n for n, text in enumerate(TEXTS["mill"]) for q in of_mill if has_answer(text, q.answers[:1])}
    assert places == {0, 1}


def test_equal_seeds_give_equal_questions(store: PassageStore) -> None:
    assert make_corpus_questions(store, 8, seed=1) == make_corpus_questions(store, 8, seed=1)
    assert make_corpus_questions(store, 8, seed=1) != make_corpus_questions(store, 8, seed=2)


def test_answers_that_many_documents_contain_are_left_out(store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {question.answers[0] for question in make_corpus_questions(store, 100)}
    assert {"1950", "12"} <= answers
    monkeypatch.setattr(corpus_questions, "_MAX_DOCUMENTS", 0)
    assert make_corpus_questions(store, 100) == []
