"""Mining of training examples: positives, negatives, and the file that holds them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.common.examples.mining import (
    PassageSearch,
    QuestionFile,
    add_retriever_negatives,
    mine_examples,
    read_examples,
    write_retriever_negatives,
)
from pipelines.common.examples.retrieval_examples import RetrievalExample, make_example, measure_overlap
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.retrieval.live import open_retriever
from ragqa.types import Hit, Passage, Question
from tests.helpers.text_index import index_texts, write_rows

PASSAGES = [
    "Skarvik Lighthouse was built in 1871 by the engineer Ada Holm.",
    "Skarvik Lighthouse stands on the island of Brenna.",
    "The lighthouse keeper of Skarvik built a small boat.",
    "Ada Holm died in Oslo.",
    "The bakery on Mill Street was founded by Otto Brandt in 1923. It is known for rye bread.",
    "Rye bread is baked on Mill Street and sold at the market.",
    "Comet Varga was discovered by Ilona Varga in Szeged in 1956.",
    "A comet is a body of ice and dust that orbits the sun.",
    "Szeged is a city in the south of Hungary.",
    "The island of Brenna has two villages, a school, and a harbour for small boats; 40 people live there in winter.",
    "In summer the harbour of Brenna is full of sailing boats.",
    "The sun is a star.",
]
LIGHTHOUSE = Question("Who built Skarvik Lighthouse?", ("Ada Holm",))


@pytest.fixture(scope="module")
def dozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index the twelve passages."""
    return index_texts(tmp_path_factory.mktemp("dozen"), PASSAGES)


def hits(*rows: int) -> list[Hit]:
    return [Hit(Passage(row, str(row), "", PASSAGES[row], "", 0, 0), 1.0 / rank) for rank, row in enumerate(rows, 1)]


def describe(pair: RetrievalExample | None) -> tuple[Any, ...]:
    assert pair is not None
    return pair.positives, [rows.tolist() for rows in pair.negatives], pair.known.tolist()


def test_the_first_passage_with_an_answer_is_the_positive_and_passages_without_are_negatives() -> None:
    pair = make_example(LIGHTHOUSE, False, hits(1, 2, 0, 9, 3, 10), {}, pool=30)
    assert describe(pair) == ((0,), [[1, 2, 9, 10]], [0, 3])
    assert describe(make_example(LIGHTHOUSE, False, hits(1, 2, 0, 9, 3, 10), {}, pool=2)) == ((0,), [[1, 2]], [0, 3])
    assert make_example(LIGHTHOUSE, False, hits(1, 2, 9), {}, pool=30) is None
    assert describe(make_example(LIGHTHOUSE, False, hits(3, 0), {}, pool=30)) == ((3,), [[]], [0, 3])


def test_answers_may_be_regular_expressions() -> None:
    question = Question("When was the bakery founded?", ("19[0-9]{2}",))
    assert describe(make_example(question, True, hits(5, 6, 4), {}, pool=30)) == ((6,), [[5]], [4, 6])
    assert make_example(question, False, hits(5, 6, 4), {}, pool=30) is None


@pytest.mark.parametrize(
    ("gold", "answers", "positive"),
    [
        ("the bakery on mill street was founded by otto brandt in 1923 . it is known for rye bread .", "1923", 4),
        ("founded by Otto Brandt in 1923", "1923", 4),
        ("The bakery on Mill Street was founded by Otto Brandt in 1923, says a plaque at its door.", "1923", 4),
        ("The bakery on Mill Street was founded by Otto Brandt, says a plaque at its door.", "a plaque", None),
        ("Somebody called Brandt began to bake there in 1923.", "1923", None),
        ("The bakery on Mill Street was founded by Otto Brandt, says a plaque at its door.", None, 4),
        ("A plaque at the door says that the bakery on Mill Street is old.", None, None),
    ],
    ids=[
        "equal",
        "holds",
        "overlaps",
        "overlaps without the answer",
        "other words",
        "overlaps widely",
        "overlaps little",
    ],
)
def test_a_gold_passage_is_found_in_the_corpus_or_kept_as_text(
    gold: str, answers: str | None, positive: int | None
) -> None:
    """The gold text itself is the positive if the corpus has no similar passage."""
    question = Question("Who founded the bakery?", (answers,) if answers else (), passages=(gold, " "))
    pair = make_example(question, False, hits(5, 4, 9), {gold: hits(5, 4)}, pool=30)
    assert pair is not None and pair.positives == (gold if positive is None else positive,)
    assert (make_example(question, False, hits(5, 4, 9), {gold: hits(5, 4)}, pool=30, keep_texts=False) is None) == (
        positive is None and answers != "1923"  # otherwise a passage with the answer is the positive
    )
    assert pair.negatives[0].tolist() == {None: [5, 9], "1923": [5, 9], "a plaque": [5, 4, 9]}[answers]


def test_overlap_is_a_share_of_the_shorter_text() -> None:
    a, b = list("abcde"), list("xabcd")
    assert measure_overlap(a, b) == measure_overlap(b, a) == pytest.approx(2 / 3)  # a b c, b c d; not c d e
    assert measure_overlap(a, list("bcd")) == 1
    assert measure_overlap(a, a[:2]) == measure_overlap(a, []) == 0


QUESTIONS = [
    {"id": "l", "question": LIGHTHOUSE.text, "answers": ["Ada Holm"]},
    {"question": "Who discovered Comet Varga?", "answers": ["Ilona Varga", "I. Varga"]},
    {"question": "What is the sun?", "answers": ["a planet"]},
    {"question": "Where is rye bread sold?", "answers": [], "passages": [PASSAGES[5]]},
    {"question": "Is there anything?", "answers": []},
    {"question": "who discovered the  COMET Varga", "answers": ["Ilona Varga"]},
]


def mine(folder: Path, index: Path, **options: Any) -> str:
    sources = [QuestionFile(write_rows(folder / "q.jsonl", QUESTIONS))]
    search = PassageSearch(open_retriever(index, "bm25"), 100, 30)
    return mine_examples(sources, search, folder / "pairs.jsonl", {"corpus": "x"}, **options)


def test_mining_writes_a_file_and_reports_what_it_dropped(dozen: Path, tmp_path: Path) -> None:
    summary = mine(tmp_path, dozen, held_out=["Who discovered comet Varga"])
    assert summary == (
        "2 of 6 questions; dropped: 1 without a passage that contains an answer, 1 with neither answers nor passages, "
        "2 also in the held-out file"
    )
    first, second = read_examples(tmp_path / "pairs.jsonl", {"corpus": "x"})
    assert (first.question.id, first.question.text, first.question.answers) == ("l", LIGHTHOUSE.text, ("Ada Holm",))
    assert first.positives == (0,) and first.known.tolist() == [
        0
    ]  # row 3 is not found: it shares no word with the question
    assert set(first.negatives[0].tolist()) == {1, 2}
    assert second.positives == (5,) and second.known.tolist() == [5]
    assert set(second.negatives[0].tolist()) == {4}
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["pairs.jsonl", "q.jsonl"]
    last = json.loads((tmp_path / "pairs.jsonl").read_text().splitlines()[-1])
    assert last["of"] == {"corpus": "x"} and last["counts"]["kept"] == 2 and last["counts"]["asked"] == 6


def test_negatives_of_the_retriever_are_a_second_pool(tmp_path: Path, dozen: Path) -> None:
    mine(tmp_path, dozen)
    pairs = read_examples(tmp_path / "pairs.jsonl", {"corpus": "x"})

    class FixedRetriever:
        def search(self, questions: list[str], k: int) -> list[list[Hit]]:
            return [hits(3, 10, 0, 1)[:k] for _ in questions]

    assert (
        write_retriever_negatives(pairs, PassageSearch(FixedRetriever(), 100, 2), tmp_path / "own.jsonl", {})
        == "4 of 4 questions"
    )
    extended = add_retriever_negatives(tmp_path / "own.jsonl", {}, pairs)
    assert [rows.tolist() for rows in extended[0].negatives] == [pairs[0].negatives[0].tolist(), [10, 1]]
    assert extended[0].known.tolist() == [0, 3]  # both name Ada Holm
    assert extended[1].known.tolist() == sorted({*pairs[1].known.tolist()})
    assert extended[1].negatives[1].tolist() == [3, 10]


def test_a_file_mined_from_something_else_is_refused(dozen: Path, tmp_path: Path) -> None:
    mine(tmp_path, dozen)
    file = tmp_path / "pairs.jsonl"
    with pytest.raises(BadInput, match=r"pairs.jsonl was mined with another corpus, depth: choose another directory"):
        read_examples(file, {"corpus": "y", "depth": 3})
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DamagedArtefact, match="delete it to mine again"):
        read_examples(file, {"corpus": "x"})
