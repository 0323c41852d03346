"""Distant supervision: passages that retrieval finds are positives or negatives by their answers."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pipelines.common.examples.data_sets import read_training_sets
from pipelines.common.examples.mining import PassageSearch
from pipelines.common.examples.passage_sampler import (
    MinedPassages,
)
from pipelines.span_reader import distant_supervision
from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.distant_supervision import RelevanceOrder, mine_passages, select_trainable
from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.metrics import has_answer
from ragqa.question_files import read_questions
from ragqa.retrieval.live import open_retriever
from ragqa.runtime.scorer import SpanScores
from ragqa.runtime.tokens import TextTokenizer, TokenInput
from ragqa.types import Hit, Passage, Question
from tests.helpers import tiny
from tests.helpers.span_reader import make_config, mine_all


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.TinyWorld, tmp_path: Path) -> ReaderConfig:
    return make_config(small, world, tmp_path)


def test_passages_with_an_answer_are_positives_and_the_others_negatives(config: ReaderConfig, tmp_path: Path) -> None:
    assert config.index is not None
    store = open_retriever(config.index).passages
    questions = [question for file in config.train for question in read_questions(file)]
    found = mine_all(config, tmp_path / "mined")
    assert len(found) == len(questions)
    for question, rows in zip(questions, found, strict=True):
        assert len(rows.positives) <= 3 and len(rows.negatives) <= 3
        assert all(has_answer(store[row].text, question.answers) for row in rows.positives.tolist())
        assert not any(has_answer(store[row].text, question.answers) for row in rows.negatives.tolist())
    assert all(len(rows.positives) for rows in found[-30:])  # the questions whose passages are in the index


def test_a_part_of_a_gold_passage_is_no_mined_positive(config: ReaderConfig, tmp_path: Path) -> None:
    assert config.index is not None
    text = open_retriever(config.index).passages[0].text
    file = tmp_path / "gold.jsonl"
    row = {"question": text, "answers": [text.split()[6]], "passages": [f"w1 {text} w2"]}
    file.write_text(json.dumps(row))
    assert 0 not in mine_all(replace(config, train=(file,)), tmp_path / "one")[0].positives
    file.write_text(json.dumps({**row, "passages": []}))
    assert 0 in mine_all(replace(config, train=(file,)), tmp_path / "other")[0].positives


def test_a_part_of_a_gold_passage_is_a_negative_only_if_the_whole_holds_the_answer(
    config: ReaderConfig, tmp_path: Path
) -> None:
    assert config.index is not None
    text = open_retriever(config.index).passages[0].text
    file = tmp_path / "gold.jsonl"
    for name, answer, among in (("clear", "w999", True), ("in other words", "w99", False)):
        file.write_text(json.dumps({"question": text, "answers": [answer], "passages": [f"w999 {text}"]}))
        found = mine_all(replace(config, train=(file,)), tmp_path / name)[0]
        assert (0 in found.negatives) == among and 0 not in found.positives


def test_a_killed_mining_continues(config: ReaderConfig, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipelines.span_reader.distant_supervision.SEARCH_BATCH", 16)
    whole = mine_all(config, tmp_path / "whole")
    searched: list[int] = []
    row = distant_supervision._select_rows

    def kill_at_40(*arguments: Any) -> Any:
        searched.append(1)
        if len(searched) == 40:
            raise KeyboardInterrupt
        return row(*arguments)

    monkeypatch.setattr(distant_supervision, "_select_rows", kill_at_40)
    with pytest.raises(KeyboardInterrupt):
        mine_all(config, tmp_path / "broken")
    again = mine_all(config, tmp_path / "broken")
    assert len(searched) == 40 + len(whole) - 32  # two files of 16 questions were finished
    for one, other in zip(whole, again, strict=True):
        assert np.array_equal(one.positives, other.positives) and np.array_equal(one.negatives, other.negatives)
    with pytest.raises(BadInput, match="was mined with another files: choose another directory"):
        mine_all(config, tmp_path / "broken", files="others")
    next((tmp_path / "broken").glob("0*.jsonl")).write_text("{")
    with pytest.raises(DamagedArtefact, match=r"delete .* to mine again"):
        mine_all(config, tmp_path / "broken")


def test_questions_without_a_passage_are_left_out(config: ReaderConfig, tmp_path: Path) -> None:
    sets, _ = read_training_sets(config.files, share=0.0)
    none, one = MinedPassages(np.array([]), np.array([1])), MinedPassages(np.array([2]), np.array([]))
    found = [none] * len(sets[0].questions) + [none, one] + [none] * (len(sets[1].questions) - 2)
    trainable, left = select_trainable(sets, found)
    assert trainable[0].questions == sets[0].questions and trainable[1].questions == [sets[1].questions[1]]
    assert len(left) == len(sets[0].questions) + 1 and left[-1] is one
    with pytest.raises(BadInput, match="no passage that holds an answer to any question"):
        select_trainable(sets[1:], [none] * len(sets[1].questions))


def test_a_reader_orders_the_positives_of_questions_without_gold_passages(tmp_path: Path) -> None:
    """The stand-in scores a passage by its length; retrieval ranks the shortest one first."""
    texts = ["w1", "w1 w2", "w1 w2 w3", "w4", "w4 w5"]
    hits = [Hit(Passage(n, str(n), "", text, "memory", 0, len(text)), 3.0 - n) for n, text in enumerate(texts)]
    tokenizer = TextTokenizer(get_weights_dir() / "reader")

    def score(inputs: list[TokenInput]) -> list[SpanScores]:
        return [SpanScores(np.zeros(1), np.zeros(1), float(len(item.ids))) for item in inputs]

    retriever = SimpleNamespace(search=lambda questions, depth: [hits[:depth] for _ in questions])
    order = RelevanceOrder(cast(Any, SimpleNamespace(tokenizer=tokenizer, max_tokens=64, score=score)))
    questions = [(Question("what?", ("w1",)), False), (Question("what?", ("w1",), passages=("w9 w1",)), False)]
    search = PassageSearch(cast(Any, retriever), 5, 2)
    mined = mine_passages(questions, search, tmp_path / "mined", {}, order=order)
    assert [rows.positives.tolist() for rows in mined] == [[2, 1], [1, 2]]  # "w1" is a part of the gold passage
    assert [rows.negatives.tolist() for rows in mined] == [[3, 4], [3, 4]]
