"""Reading a split of a suite, from files and from the hub."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval.curatedtrec import CURATEDTREC
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Hub, Suite, read_split
from eval.webq import WEBQ
from ragqa.errors import BadInput, MissingExtra
from ragqa.types import Question
from tests.helpers.suites import QUESTIONS, THREE, write_questions


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with the split ``test-a`` of three questions."""
    (tmp_path / "data").mkdir()
    return write_questions(tmp_path / "data" / "test-a.jsonl").parent


# Reading a split of files


def test_a_split_is_read_one_by_one(data: Path) -> None:
    questions = read_split(THREE, "test-a", data)
    assert (questions.name, questions.split, len(questions)) == ("Three Questions", "test-a", 3)
    iterator = iter(questions)
    assert iter(iterator) is iterator
    assert list(questions) == QUESTIONS


@pytest.mark.parametrize("questions", [QUESTIONS[:2], [*QUESTIONS, QUESTIONS[0]]], ids=["too few", "too many"])
def test_a_wrong_number_of_questions_is_reported_before_any_is_asked(data: Path, questions: list[Question]) -> None:
    file = write_questions(data / "test-a.jsonl", questions)
    with pytest.raises(BadInput) as caught:
        read_split(THREE, "test-a", data)
    assert str(caught.value) == f"{file} has {len(questions)} questions, but the split has 3"


def test_an_empty_file_is_no_split(data: Path) -> None:
    (data / "test-a.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"test-a\.jsonl"):
        list(read_split(THREE, "test-a", data))


def test_the_error_of_an_unknown_split_lists_the_splits(data: Path) -> None:
    with pytest.raises(BadInput, match=r"Three Questions has no split 'test' in files: choose one of train, test-a$"):
        read_split(THREE, "test", data)
    with pytest.raises(BadInput, match=r"no split 'test-a' on the hub: choose one of train, test$"):
        read_split(NQ, "test-a", None)
    with pytest.raises(BadInput, match=r"no split 'dev-b' in files: choose one of train, dev, test-a, test$"):
        read_split(NQ, "dev-b", data)


def test_a_data_set_that_no_hub_holds_needs_its_files() -> None:
    for split in ("train", "test-a", "test"):
        with pytest.raises(BadInput, match=r"CuratedTREC is not on the hub: .*--data"):
            read_split(CURATEDTREC, split, None)


def test_a_missing_file_is_reported_before_anything_is_asked(data: Path) -> None:
    with pytest.raises(BadInput, match=r"train\.jsonl does not exist: --data .* Three Questions$"):
        read_split(THREE, "train", data)
    (data / "train.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"train\.jsonl"):
        read_split(THREE, "train", data)
    for folder in (data / "nowhere", data / "test-a.jsonl"):
        with pytest.raises(BadInput, match=r"--data must be the folder of Three Questions"):
            read_split(THREE, "test-a", folder)


def test_the_folder_of_another_suite_is_refused(data: Path) -> None:
    """By the name of a file, or else by how many questions are in it."""
    with pytest.raises(BadInput, match=r"dev-a-v1\.1\.json\.xz does not exist: --data .* SQuAD"):
        read_split(SQUAD, "dev-a", data)
    with pytest.raises(BadInput, match=r"test-a\.jsonl.*1,?057"):
        read_split(WEBQ, "test-a", data)


# Reading a split of the hub, without a network


REVISION = "0123456789abcdef0123456789abcdef01234567"


def on_hub(name: str, *, questions: int = 2, answers: str = "answer") -> Suite:
    splits = {"test": ("validation", questions)}
    return replace(THREE, hub=Hub(name=name, revision=REVISION, question="question", answers=answers, splits=splits))


def as_parquet(file: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), file.with_suffix(".parquet"))


def as_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


NQ_ROWS = [{"question": "who?", "answer": ["Ada", "Ada Holm"]}, {"question": "où ?", "answer": ["Orléans"]}]
SQUAD_ROWS = [
    {"id": "56be", "title": "A", "question": "who?", "answers": {"text": ["Ada", "Ada"], "answer_start": [0, 0]}},
    {"id": "56bf", "title": "B", "question": "où ?", "answers": {"text": ["Orléans"], "answer_start": [3]}},
]


@pytest.mark.parametrize("write", [as_parquet, as_jsonl])
@pytest.mark.parametrize(
    ("rows", "answers", "expected"),
    [
        (NQ_ROWS, "answer", [Question("who?", ("Ada", "Ada Holm"), "1"), Question("où ?", ("Orléans",), "2")]),
        (
            SQUAD_ROWS,
            "answers.text",
            [Question("who?", ("Ada", "Ada"), "56be"), Question("où ?", ("Orléans",), "56bf")],
        ),
    ],
    ids=["a column of answers", "answers within a column"],
)
def test_a_split_of_the_hub(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, list[dict[str, Any]]], None],
    rows: list[dict[str, Any]],
    answers: str,
    expected: list[Question],
) -> None:
    """A folder stands in for the hub's repository."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "repository"
    repository.mkdir()
    write(repository / "train", [{**row, "question": "of train?"} for row in rows])
    write(repository / "validation", rows)
    questions = read_split(on_hub(str(repository), answers=answers), "test", None)
    assert len(questions) == 2
    assert list(questions) == expected
    for count in (1, 3):
        with pytest.raises(BadInput, match=f"{re.escape(str(repository))}, test has"):
            read_split(on_hub(str(repository), questions=count, answers=answers), "test", None)


def test_the_hub_is_asked_for_one_revision_of_one_split(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Any, ...]] = []

    def load_dataset(name: str, *, revision: str, split: str) -> list[dict[str, Any]]:
        requests.append((name, revision, split))
        return NQ_ROWS

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    questions = read_split(on_hub("somebody/something"), "test", None)
    assert [question.text for question in questions] == ["who?", "où ?"]
    assert requests == [("somebody/something", REVISION, "validation")]


@pytest.mark.parametrize("suite", [NQ, WEBQ, SQUAD], ids=lambda suite: suite.key)
def test_each_split_of_a_hub_is_counted(monkeypatch: pytest.MonkeyPatch, suite: Suite) -> None:
    assert suite.hub is not None
    column, _, inner = suite.hub.answers.partition(".")
    row = {suite.hub.question: "who?", column: {inner: ["Ada"]} if inner else ["Ada"]}
    row |= {suite.hub.passage: "Ada was here."} if suite.hub.passage else {}
    passages = ("Ada was here.",) if suite.hub.passage else ()
    for split, (_, expected) in suite.hub.splits.items():
        rows = [row] * expected
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, rows=rows, **__: rows))
        questions = read_split(suite, split, None)
        assert len(questions) == expected
        assert next(iter(questions)) == Question("who?", ("Ada",), "1", passages=passages)
        rows.append(row)
        with pytest.raises(BadInput, match=f"{suite.hub.name}, {split} has {expected + 1} questions"):
            read_split(suite, split, None)


def test_the_hub_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"somebody/something.*'\.\[torch\]'"):
        list(read_split(on_hub("somebody/something"), "test", None))
