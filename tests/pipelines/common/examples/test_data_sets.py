"""Training sets: what is held out of them."""

import json
from pathlib import Path

import pytest

from pipelines.common.examples.data_sets import (
    HELD_OUT_SHARE,
    is_held_out,
    read_held_out_questions,
    read_training_sets,
)
from pipelines.common.examples.mining import QuestionFile
from pipelines.common.questions import make_question_keys
from pipelines.span_reader.config import ReaderConfig
from ragqa.errors import BadInput
from ragqa.question_files import read_questions
from tests.helpers import tiny
from tests.helpers.span_reader import make_config


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.TinyWorld, tmp_path: Path) -> ReaderConfig:
    return make_config(small, world, tmp_path)


def test_held_out_articles_and_known_questions_are_not_trained_on(config: ReaderConfig, world: tiny.TinyWorld) -> None:
    again = config.out.with_name("again.jsonl")
    again.write_text('{"question": "The w60 w61, w139?", "answers": ["w1"]}\n{"question": "w60", "answers": ["w1"]}\n')
    known = make_question_keys([world.dev])  # "w60 w61 w139" among others
    sets, (held,) = read_training_sets(
        [QuestionFile(config.train[0]), QuestionFile(again, True)], share=0.3, known=known
    )
    assert {question.titles[0] for question in held} == {f"w{n}" for n in range(8) if is_held_out(f"w{n}", 0.3)}
    assert not {question.titles[0] for question in sets[0].questions} & {question.titles[0] for question in held}
    training_texts, held_out_texts = (
        [question.text for question in read_questions(config.train[0])],
        {each.text for each in held},
    )
    assert len(sets[0].questions) == sum(text not in held_out_texts for text in training_texts) > 60
    assert [question.text for question in sets[1].questions] == ["w60"] and sets[1].file.regex


def test_repeated_held_out_questions_and_their_articles_are_left_out_of_other_files(config: ReaderConfig) -> None:
    _, ((first, *_),) = read_training_sets([QuestionFile(config.train[0])], share=0.3)
    rows = [
        {"question": f"{first.text.title()}?", "answers": ["w1"]},
        {"question": "of its article", "answers": ["w1"], "passages": ["w1"], "titles": list(first.titles)},
        {"question": "of another", "answers": ["w1"], "passages": ["w1"], "titles": ["elsewhere"]},
    ]
    other = config.out.with_name("other.jsonl")
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets, _ = read_training_sets([QuestionFile(config.train[0]), QuestionFile(other)], share=0.3)
    assert [question.text for question in sets[1].questions] == ["of another"]
    other.write_text('{"question": "a pattern", "answers": ["w[0-9]"], "passages": ["it is w1"]}\n')
    sets, _ = read_training_sets([QuestionFile(other, True)], share=0.3)
    assert len(sets[0].questions) == 1
    with pytest.raises(BadInput, match="no question has a gold passage that contains its answer"):
        read_training_sets([QuestionFile(other)], share=0.3)


def test_held_out_is_a_share_of_the_titles() -> None:
    share = sum(is_held_out(f"title {n}", HELD_OUT_SHARE) for n in range(5000)) / 5000
    assert share == pytest.approx(0.05, abs=0.01)


def test_titles_of_passages_are_read(tmp_path: Path) -> None:
    qed = {"question_text": "q", "answer_text": ["a"], "paragraph_text": "a b", "title_text": "T", "example_id": 1}
    file = tmp_path / "qed.jsonl"
    file.write_text(json.dumps(qed) + "\n" + json.dumps({"question": "q", "answers": ["a"], "passages": ["a"]}) + "\n")
    assert [question.titles for question in read_questions(file)] == [("T",), ()]
    file.write_text(json.dumps({"question": "q", "answers": ["a"], "passages": ["a", "b"], "titles": ["T"]}))
    with pytest.raises(BadInput, match=r"qed\.jsonl:1: .*titles must be as many as passages"):
        list(read_questions(file))


def test_a_file_that_is_not_of_squad_holds_out_no_articles(world: tiny.TinyWorld) -> None:
    with pytest.raises(BadInput, match=r"dev\.jsonl is not a SQuAD 1\.1 file"):
        read_held_out_questions(world.dev, 0.5)


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"question": "who", "answers": []}\n')
    with pytest.raises(BadInput, match=r"empty\.jsonl: no question has an answer"):
        read_training_sets([QuestionFile(empty)], share=0.0)
