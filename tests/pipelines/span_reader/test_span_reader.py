"""The recipe of the reader: what it is trained on, what a step does, and that a broken run goes on as if unbroken."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from conftest import WORDS, untimed
from torch import Tensor

from pipelines.common import run
from pipelines.common import spans as reading
from pipelines.common.data_sets import HELD_OUT_SHARE, is_held_out, read_training_sets
from pipelines.common.mining import PassageSearch, QuestionFile
from pipelines.common.passage_sampler import (
    MinedPassages,
    PassageMix,
    PassageSampler,
    TitledText,
    load_splitter,
    sample_ranks,
)
from pipelines.common.questions import asked_in, drawn
from pipelines.common.spans import MarkedWindow, collate
from pipelines.span_reader import mining
from pipelines.span_reader import train as span_reader
from pipelines.span_reader.config import MAX_HARD_SHARE, ReaderConfig
from pipelines.span_reader.data import POOL_BATCHES, BatchShape, ReaderBatches, apportion
from pipelines.span_reader.exam import make_gold_exam
from pipelines.span_reader.gold_passages import write_gold_passages
from pipelines.span_reader.loss import ReaderLosses, compute_losses, is_hard_step
from pipelines.span_reader.mining import mine_passages, select_trainable
from pipelines.span_reader.train import main
from ragqa.artefacts.machine import describe_hardware
from ragqa.artefacts.paths import weights_dir
from ragqa.corpus.blocks import make_word_splitter
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, NonFiniteLoss
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.metrics import has_answer
from ragqa.models.span_reader import IMPOSSIBLE, SpanReader, compute_span_logits
from ragqa.questions import read_questions
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.reading.windows import Window
from ragqa.retrieval.live import open_retriever
from ragqa.runtime.export import export
from ragqa.runtime.scorer import load_scorer
from ragqa.runtime.tokens import TextTokenizer, TokenInput
from ragqa.training import precision
from ragqa.training.log import read_rows
from ragqa.training.schedule import warmup_linear
from ragqa.types import Hit, Passage
from tests.ragqa.models.test_encoders import make_tiny_config


def squad(path: Path, *, articles: int = 8) -> Path:
    """A SQuAD file in which the answer is the word after the question's word."""
    data = []
    for a in range(articles):
        paragraphs = []
        for p in range(3):
            words = [f"w{(a * 31 + p * 7 + i * 3) % 1000}" for i in range(12)]
            questions = [
                {
                    "id": f"{a}-{p}-{i}",
                    "question": f"what follows {words[i]}",
                    "answers": [{"text": words[i + 1], "answer_start": " ".join(words).find(words[i + 1])}],
                }
                for i in range(0, 10, 2)
            ]
            paragraphs.append({"context": " ".join(words), "qas": questions})
        data.append({"title": f"w{a}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"data": data}))
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.Tiny:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.Tiny, tmp_path: Path) -> ReaderConfig:
    """Paragraphs with their questions, and pairs of question and answer over an index."""
    return ReaderConfig(
        train=(squad(tmp_path / "squad.json"), world.train),
        index=world.corpus,
        dev=world.dev,
        encoder=small,
        out=tmp_path / "run",
        steps=6,
        batch=4,
        warmup=2,
        held_out=0.3,
        dropout=0.1,
        max_input=32,
        max_span=4,
        read=3,
        eval_every=4,
        save_every=3,
        sample=6,
    )


def figures(out: Path) -> list[dict[str, Any]]:
    return [untimed(row) for row in read_rows(out)]


# --- what it is trained on ---


def test_what_is_held_out_is_not_trained_on(config: ReaderConfig, world: tiny.Tiny) -> None:
    again = config.out.with_name("again.jsonl")
    again.write_text('{"question": "The w60 w61, w139?", "answers": ["w1"]}\n{"question": "w60", "answers": ["w1"]}\n')
    known = asked_in([world.dev])  # "w60 w61 w139" among others
    sets, (held,) = read_training_sets(
        [QuestionFile(config.train[0]), QuestionFile(again, True)], share=0.3, known=known
    )
    assert {question.titles[0] for question in held} == {f"w{n}" for n in range(8) if is_held_out(f"w{n}", 0.3)}
    assert not {question.titles[0] for question in sets[0].questions} & {question.titles[0] for question in held}
    asked, heard = [question.text for question in read_questions(config.train[0])], {each.text for each in held}
    assert len(sets[0].questions) == sum(text not in heard for text in asked) > 60
    assert [question.text for question in sets[1].questions] == ["w60"] and sets[1].file.regex


def test_what_a_held_out_question_asks_is_not_trained_on_from_elsewhere(config: ReaderConfig) -> None:
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
    with pytest.raises(BadInput, match="no question names a passage where its answer stands"):
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


def test_gold_passages_do_not_take_the_place_of_questions(config: ReaderConfig) -> None:
    before = config.train[0].read_bytes()
    with pytest.raises(BadInput, match="is one of the files that are read"):
        write_gold_passages(config.train, config.train[0].parent / "." / config.train[0].name)
    assert config.train[0].read_bytes() == before


def test_gold_passages_become_documents(tmp_path: Path) -> None:
    out = tmp_path / "gold.jsonl"
    qed = tmp_path / "qed.jsonl"
    rows = [{"question": "q", "answers": ["a"], "passages": ["one", " "], "titles": ["T", "U"]}] * 2
    qed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert write_gold_passages([squad(tmp_path / "squad.json"), qed], out) == 8 * 3 + 1
    documents = [json.loads(line) for line in out.read_text().splitlines()]
    assert len({document["id"] for document in documents}) == len(documents)
    assert documents[0]["title"] == "w0" and (documents[-1]["title"], documents[-1]["text"]) == ("T", "one")
    qed.write_text('{"question": "q", "answers": ["a"]}\n')
    with pytest.raises(BadInput, match="no question names a passage"):
        write_gold_passages([qed], tmp_path / "none.jsonl")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gold.jsonl", "qed.jsonl", "squad.json"]


# --- what is found for it ---


def mined(config: ReaderConfig, folder: Path, **other: Any) -> list[MinedPassages]:
    assert config.index is not None
    asked = [(question, False) for file in config.train for question in read_questions(file)]
    search = PassageSearch(open_retriever(config.index), 10, 3)
    return mine_passages(asked, search, folder, {"files": "these", **other})


def test_what_holds_an_answer_is_right_and_the_rest_is_wrong(config: ReaderConfig, tmp_path: Path) -> None:
    assert config.index is not None
    store = open_retriever(config.index).passages
    asked = [question for file in config.train for question in read_questions(file)]
    found = mined(config, tmp_path / "mined")
    assert len(found) == len(asked)
    for question, rows in zip(asked, found, strict=True):
        assert len(rows.positives) <= 3 and len(rows.negatives) <= 3
        assert all(has_answer(store[row].text, question.answers) for row in rows.positives.tolist())
        assert not any(has_answer(store[row].text, question.answers) for row in rows.negatives.tolist())
    assert all(len(rows.positives) for rows in found[-30:])  # of the pairs, which the index knows


def test_a_gold_passage_is_not_found_again(config: ReaderConfig, tmp_path: Path) -> None:
    assert config.index is not None
    text = open_retriever(config.index).passages[0].text
    file = tmp_path / "gold.jsonl"
    row = {"question": text, "answers": [text.split()[6]], "passages": [f"w1 {text} w2"]}
    file.write_text(json.dumps(row))
    assert 0 not in mined(replace(config, train=(file,)), tmp_path / "one")[0].positives
    file.write_text(json.dumps({**row, "passages": []}))
    assert 0 in mined(replace(config, train=(file,)), tmp_path / "other")[0].positives


def test_a_part_of_a_gold_passage_is_wrong_only_where_the_whole_is_clearly_right(
    config: ReaderConfig, tmp_path: Path
) -> None:
    assert config.index is not None
    text = open_retriever(config.index).passages[0].text
    file = tmp_path / "gold.jsonl"
    for name, answer, among in (("clear", "w999", True), ("in other words", "w99", False)):
        file.write_text(json.dumps({"question": text, "answers": [answer], "passages": [f"w999 {text}"]}))
        found = mined(replace(config, train=(file,)), tmp_path / name)[0]
        assert (0 in found.negatives) == among and 0 not in found.positives


def test_mining_goes_on_where_it_was_killed(config: ReaderConfig, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipelines.span_reader.mining.SEARCH_BATCH", 16)
    whole = mined(config, tmp_path / "whole")
    searched: list[int] = []
    row = mining._select_rows

    def killed(*arguments: Any) -> Any:
        searched.append(1)
        if len(searched) == 40:
            raise KeyboardInterrupt
        return row(*arguments)

    monkeypatch.setattr(mining, "_select_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        mined(config, tmp_path / "broken")
    again = mined(config, tmp_path / "broken")
    assert len(searched) == 40 + len(whole) - 32  # two files of 16 were there
    for one, other in zip(whole, again, strict=True):
        assert np.array_equal(one.positives, other.positives) and np.array_equal(one.negatives, other.negatives)
    with pytest.raises(BadInput, match="was mined with another files: choose another directory"):
        mined(config, tmp_path / "broken", files="others")
    next((tmp_path / "broken").glob("0*.jsonl")).write_text("{")
    with pytest.raises(DamagedArtefact, match=r"delete .* to mine again"):
        mined(config, tmp_path / "broken")


def test_questions_without_a_passage_are_left_out(config: ReaderConfig, tmp_path: Path) -> None:
    sets, _ = read_training_sets(config.files, share=0.0)
    none, one = MinedPassages(np.array([]), np.array([1])), MinedPassages(np.array([2]), np.array([]))
    found = [none] * len(sets[0].questions) + [none, one] + [none] * (len(sets[1].questions) - 2)
    kept, left = select_trainable(sets, found)
    assert kept[0].questions == sets[0].questions and kept[1].questions == [sets[1].questions[1]]
    assert len(left) == len(sets[0].questions) + 1 and left[-1] is one
    with pytest.raises(BadInput, match="no passage that holds an answer to any question"):
        select_trainable(sets[1:], [none] * len(sets[1].questions))


# --- batches ---


def batches(config: ReaderConfig, folder: Path | None = None, **options: Any) -> ReaderBatches:
    sets, _ = read_training_sets(config.files, share=0.0)
    mix = {"positives": 1, "distant": 1, "negatives": 1.0, "hard": 0.5, "whole": 0.5, "untitled": 0.5} | options
    retriever = open_retriever(config.index) if config.index and folder else None
    store, tokenizer = retriever.passages if retriever else None, TextTokenizer(config.encoder)
    passages = mined(config, folder) if folder else []
    sampler = PassageSampler(sets, passages, store, load_splitter(config.index, tokenizer), PassageMix(**mix))
    shape = BatchShape(
        batch=config.batch, parts=config.accumulate, max_tokens=config.max_input, max_span=config.max_span
    )
    return ReaderBatches(sets, sampler, tokenizer, shape, shares=config.shares, seed=config.seed)


def test_batches_depend_on_the_step_alone(config: ReaderConfig, tmp_path: Path) -> None:
    one, other = batches(config, tmp_path / "mined"), batches(config, tmp_path / "mined")
    for step in (0, 60, 3):
        (here,), (there,) = one[step], other[step]
        assert all(torch.equal(getattr(here, name), getattr(there, name)) for name in vars(here))


def test_every_right_span_is_marked_and_nothing_else(config: ReaderConfig, tmp_path: Path) -> None:
    made = batches(config, tmp_path / "mined", positives=2, distant=2, negatives=2.0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"w{i}" for i in range(1100)]]
    for step in range(5):
        (reads,) = made[step]
        for n in range(len(reads.ids_NL)):
            question, _ = made.sampler.questions[made.get_questions(step)[int(reads.question_N[n])]]
            texts = [words[i] for i in reads.ids_NL[n].tolist()]
            first = max(at for at, word in enumerate(texts[:-1]) if word == "[SEP]" and "[SEP]" in texts[at + 1 :]) + 1
            wanted = {(at, 0) for at, word in enumerate(texts) if at >= first and word == question.answers[0]}
            assert {tuple(each) for each in reads.correct_NLW[n].nonzero().tolist()} == wanted
            assert all(reads.possible_NLW[n][place] for place in wanted)


def test_shares_are_kept_exactly(config: ReaderConfig) -> None:
    assert apportion([1, 1, 1], 10) == [4, 3, 3]
    assert apportion([0.3, 0.7], 200) == [60, 140]
    config = replace(config, train=(config.train[0], squad(config.out.with_name("other.json"))), shares=(3, 1))
    made = batches(config)
    size = len(made.sampler.questions) // 2
    for pool in (0, 1):
        asked = Counter(
            number // size
            for step in range(pool * POOL_BATCHES, (pool + 1) * POOL_BATCHES)
            for number in made.get_questions(step)
        )
        assert asked == {0: 150, 1: 50}


def test_every_epoch_asks_each_question_once() -> None:
    both = [drawn(7, 3, first, 7) for first in (0, 7)]
    assert all(sorted(each) == list(range(7)) for each in both) and both[0] != both[1]
    assert drawn(7, 3, 5, 4) == [*both[0][5:], *both[1][:2]]


def test_a_batch_is_of_passages_of_like_length(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    rng = np.random.default_rng(0)
    rows = [
        {"question": f"w{n}", "answers": ["w1"], "passages": ["w1 " * int(rng.integers(1, 90))]} for n in range(200)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=8, max_input=100)
    made = batches(config, negatives=0.0)
    padding = [1 - float(reads.mask_NL.float().mean()) for step in range(POOL_BATCHES) for reads in made[step]]
    assert np.mean(padding) < 0.1
    lengths = [made[step][0].ids_NL.shape[1] for step in range(POOL_BATCHES)]
    assert np.corrcoef(np.arange(POOL_BATCHES), lengths)[0, 1] < 0.5  # batches are not in order of their lengths


@pytest.mark.parametrize(("negatives", "count"), [(0.0, 0.0), (0.3, 0.3), (2.5, 2.5)])
def test_so_many_negatives_on_average(config: ReaderConfig, tmp_path: Path, negatives: float, count: float) -> None:
    made = batches(config, tmp_path / "mined", negatives=negatives, hard=1.0).sampler
    pairs = range(len(made.questions) - 30, len(made.questions))
    rng = np.random.default_rng(0)
    drawn = [(number, *made.sample(number, rng)) for _ in range(20) for number in pairs]
    assert np.mean([len(wrong) for _, _, wrong in drawn]) == pytest.approx(count, abs=0.15)
    for number, right, wrong in drawn:
        assert [made.holds_answer(text, number) for _, text in (*right, *wrong)] == [True] + [False] * len(wrong)


def test_gold_passages_come_first_and_random_ones_hold_no_answer(config: ReaderConfig, tmp_path: Path) -> None:
    beside = {"positives": 2, "distant": 2, "negatives": 3.0, "hard": 0.0, "untitled": 0.0}
    made, rng = batches(config, tmp_path / "mined", **beside).sampler, np.random.default_rng(0)
    for number, (question, _) in enumerate(made.questions):
        right, wrong = made.sample(number, rng)
        if question.passages:
            assert right[0] == (question.titles[0], question.passages[0])
        assert 1 <= len(right) <= 2 and all(made.holds_answer(text, number) for _, text in right)
        assert not any(made.holds_answer(text, number) for _, text in wrong)


@pytest.fixture
def articles(small: Path, tmp_path: Path) -> ReaderConfig:
    """Six articles of four paragraphs of 250 words, each of them three blocks of an index, with questions of each."""
    rng, data = np.random.default_rng(0), []
    for a in range(6):
        paragraphs = []
        for p in range(4):
            words = [f"w{100 + a * 150 + n}" for n in rng.integers(0, 150, 250)]
            answers = [f"w{1000 + 4 * a + p}", *(f"w{n}" for n in rng.integers(1, 100, 2))]
            for at, answer in zip((10, 130, 230), answers, strict=True):
                words[at] = answer
            questions = [
                {
                    "id": f"{a}-{p}-{answer}",
                    "question": f"{words[3]} {words[150]} {words[240]}",
                    "answers": [{"text": answer, "answer_start": " ".join(words).find(answer)}],
                }
                for answer in answers
            ]
            paragraphs.append({"context": " ".join(words), "qas": questions})
        data.append({"title": f"article {a}", "paragraphs": paragraphs})
    file = tmp_path / "articles.json"
    file.write_text(json.dumps({"data": data}))
    write_gold_passages([file], tmp_path / "gold.jsonl")
    build_index([tmp_path / "gold.jsonl"], tmp_path / "articles.index", IndexConfig(retriever="bm25"))
    return ReaderConfig(
        train=(file,), index=tmp_path / "articles.index", encoder=small, out=tmp_path, batch=4, max_input=300
    )


def drawn_often(made: PassageSampler) -> Iterator[tuple[int, list[TitledText], list[TitledText]]]:
    rng = np.random.default_rng(1)
    return ((number, *made.sample(number, rng)) for _ in range(8) for number in range(len(made.questions)))


@pytest.mark.parametrize("hard", [0.0, 1.0])
def test_the_form_of_a_passage_does_not_say_that_it_is_right(
    articles: ReaderConfig, tmp_path: Path, hard: float
) -> None:
    made = batches(articles, tmp_path / "mined", hard=hard).sampler
    golds = {question.passages[0] for question, _ in made.questions}
    starts, ends = {text[:30] for text in golds}, {text[-30:] for text in golds}
    shares = []
    for part in zip(*((right, wrong) for _, right, wrong in drawn_often(made)), strict=True):
        texts = [text for passages in part for _, text in passages]
        assert len(texts) > 400 and {len(text.split()) for text in texts} == {50, 100, 250}
        edges = [(text in golds, text[:30] in starts, text[-30:] in ends) for text in texts]
        shares.append(np.mean(edges, axis=0))
    assert shares[0][0] == pytest.approx(0.5, abs=0.06)
    assert shares[0] == pytest.approx(shares[1], abs=0.1)


def test_answers_stay_marked_in_blocks_and_paragraphs(articles: ReaderConfig, tmp_path: Path) -> None:
    made = batches(articles, tmp_path / "mined")
    lengths = set()
    for step in range(20):
        (reads,) = made[step]
        marked = reads.correct_NLW.flatten(1).any(-1)
        assert marked.tolist() == (reads.rank_N == 0).tolist()
        lengths |= {int(length) // 50 for length in reads.mask_NL[marked].sum(-1)}
    assert {1, 2, 5} <= lengths  # blocks of 50 and 100 words, paragraphs of 250, and some wordpieces of the question


def test_whole_or_not_at_all(articles: ReaderConfig, tmp_path: Path) -> None:
    made = batches(articles, tmp_path / "mined", whole=1.0, hard=1.0, untitled=0.0).sampler
    for number, right, wrong in drawn_often(made):
        question, _ = made.questions[number]
        assert right == [(question.titles[0], question.passages[0])]
        (title, text) = wrong[0]
        assert len(text.split()) == 250 and title == question.titles[0] and text != question.passages[0]
        assert not made.holds_answer(text, number)
    made = batches(articles, tmp_path / "mined", whole=0.0).sampler
    for number, right, wrong in drawn_often(made):
        assert all(len(text.split()) <= 100 for _, text in (*right, *wrong))
        assert made.holds_answer(right[0][1], number) and right[0][1] in made.questions[number][0].passages[0]
    made = batches(replace(articles, index=None), whole=0.0).sampler  # cut as an index would
    assert all(len(text.split()) <= 100 for _, right, wrong in drawn_often(made) for _, text in (*right, *wrong))


def test_an_article_of_one_paragraph_has_a_whole_one_of_another_beside_it(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "qed.jsonl"
    rows = [
        {"question": "w1", "answers": [f"w{n + 5}"], "passages": [f"w{n + 5} w{n}"], "titles": [f"{n}"]}
        for n in range(9)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=4)
    made = batches(config, whole=1.0, hard=1.0, untitled=0.0).sampler
    for _, right, wrong in drawn_often(made):
        assert all(each != right[0] and each[1].endswith(f" w{each[0]}") for each in wrong)


def test_a_question_without_gold_passages_is_read_in_several(config: ReaderConfig, tmp_path: Path) -> None:
    assert config.index is not None
    sets, _ = read_training_sets([QuestionFile(config.train[1])], share=0.0)
    found = [MinedPassages(np.array([7, 5, 3, 1]), np.array([0]))] * len(sets[0].questions)
    store = open_retriever(config.index).passages
    mix = PassageMix(positives=1, distant=3, negatives=0.0, hard=0.0, whole=0.5, untitled=0.0)
    made = PassageSampler(sets, found, store, make_word_splitter(), mix)
    rng = np.random.default_rng(0)
    drawn = [[text for _, text in made.sample(0, rng)[0]] for _ in range(300)]
    assert all(len(set(texts)) == 3 and set(texts) < {store[row].text for row in (7, 5, 3, 1)} for texts in drawn)
    left_out = Counter(next(row for row in (7, 5, 3, 1) if store[row].text not in texts) for texts in drawn)
    assert left_out[7] < left_out[5] < left_out[1]


def test_the_better_are_drawn_more_often() -> None:
    rng = np.random.default_rng(0)
    firsts = Counter(sample_ranks(3, 1, rng)[0] for _ in range(6000))
    assert [firsts[rank] / 6000 for rank in range(3)] == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)
    assert sorted(sample_ranks(3, 5, rng)) == [0, 1, 2] and sample_ranks(0, 2, rng) == sample_ranks(3, 0, rng) == []


@pytest.mark.parametrize(
    ("answer", "text", "width"),
    [
        ("1950", "It was built in the 1950s.", 30),
        ("345", "It has 12,345 rooms.", 30),
        ("one two three", "one two three", 2),
    ],
)
def test_an_answer_that_cannot_be_marked_does_not_make_its_passage_wrong(
    tmp_path: Path, answer: str, text: str, width: int
) -> None:
    file = tmp_path / "gold.jsonl"
    rows = [
        {"question": "When was the mill built?", "answers": [answer], "passages": [text]},
        {"question": "When did it close?", "answers": ["May"], "passages": ["It closed in May."]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ReaderConfig(train=(file,), encoder=weights_dir() / "encoder", out=tmp_path, batch=2, max_span=width)
    made = batches(config, negatives=1.0, hard=0.0, whole=1.0)
    tokenizer, read = TextTokenizer(config.encoder), Counter()
    texts = [tokenizer.tokenize(row["passages"][0]).ids for row in rows]
    for step in range(10):
        (reads,) = made[step]
        for n in range(len(reads.ids_NL)):
            asked, ids = made.get_questions(step)[int(reads.question_N[n])], reads.ids_NL[n].tolist()
            which = next((row for row, pieces in enumerate(texts) if str(pieces)[1:-1] in str(ids)), None)
            read[asked, which] += 1  # None where nothing else is left to be read
            assert bool(reads.correct_NLW[n].any()) == (asked == which == 1)
    assert read[0, 0] == 0 and min(read[0, 1], read[1, 0], read[1, 1]) > 0


def test_a_long_passage_is_cut_so_that_an_answer_stays(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    text = " ".join(["w2"] * 60 + ["w7"] + ["w3"] * 60)
    file.write_text(json.dumps({"question": "w9", "answers": ["w7"], "passages": [text]}))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=1, max_input=32)
    made = batches(config, negatives=0.0)
    for step in range(10):
        (reads,) = made[step]
        assert reads.ids_NL.shape[1] <= 32 and int(reads.correct_NLW.sum()) == 1
        assert bool((reads.correct_NLW <= reads.possible_NLW).all())


def test_a_question_without_a_word_to_read_is_read_as_nothing(small: Path, tmp_path: Path, monkeypatch) -> None:
    """Such are not trained on, but what is drawn for one may come to this."""
    monkeypatch.setattr("pipelines.common.data_sets._is_answered_by_gold", lambda *_: True)
    file = tmp_path / "make_blank_window.jsonl"
    file.write_text(json.dumps({"question": "w9", "answers": ["w7"], "passages": ["\u200b"]}))
    (reads,) = batches(ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=1), negatives=0.0)[0]
    assert len(reads.ids_NL) == 1 and not reads.correct_NLW.any()


# --- losses ---


def test_span_logits_by_hand() -> None:
    start = torch.tensor([[9.0, 1.0, 2.0, 3.0]])
    end = torch.tensor([[9.0, 10.0, 20.0, 30.0]])
    inside = torch.tensor([[False, True, True, True]])
    scores = compute_span_logits(start, end, inside, 2)
    possible = scores[0] > IMPOSSIBLE / 2
    assert possible.tolist() == [[False, False], [True, True], [True, True], [True, False]]
    assert scores[0][possible].tolist() == [11.0, 21.0, 22.0, 32.0, 33.0]


def by_loops(reader: SpanReader, reads: Any, size: int, *, hard: bool, apart: bool) -> tuple[list[float], list[float]]:
    """Of each question: -log of what is right, and how well relevance is known; span by span."""
    start, end, relevance = (
        each.detach().double().numpy() for each in reader(reads.ids_NL, reads.mask_NL, reads.types_NL)
    )
    spans: list[dict[int, list[tuple[float, bool]]]] = [{} for _ in range(size)]
    told: list[list[float]] = [[] for _ in range(size)]
    for n, (question, rank) in enumerate(zip(reads.question_N.tolist(), reads.rank_N.tolist(), strict=True)):
        mine = spans[question].setdefault(rank, [])
        for at, width in reads.possible_NLW[n].nonzero().tolist():
            score = start[n, at] + end[n, at + width] + relevance[n]
            mine.append((score, bool(reads.correct_NLW[n, at, width])))
        holds = any(right for _, right in mine)
        told[question].append(math.log1p(math.exp(-relevance[n] if holds else relevance[n])))
    nll = []
    for each in spans:
        groups = list(each.values()) if apart else [[span for mine in each.values() for span in mine]]
        values = []
        for group in groups:
            right = [math.exp(score) for score, is_right in group if is_right]
            if right:
                total = sum(math.exp(score) for score, _ in group)
                values.append(-math.log((max(right) if hard else sum(right)) / total))
        nll.append(sum(values) / len(values) if values else 0.0)
    return nll, [sum(each) / len(each) for each in told]


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_losses_are_those_of_loops(config: ReaderConfig, tmp_path: Path, monkeypatch, hard: bool, apart: bool) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: torch.enable_grad())  # in float32, to compare
    monkeypatch.setattr(reading, "_CPU_ROWS", 1)  # every length by itself
    monkeypatch.setattr(reading, "_CPU_LENGTH_STEP", 1)
    config = replace(config, per_passage=apart)
    reader = SpanReader.from_encoder(config.encoder).eval()
    (reads,) = batches(config, tmp_path / "mined", positives=2, distant=2, negatives=1.5)[1]
    assert len(reads.length_groups) > 1 and reads.tokens == int(reads.mask_NL.sum()) < reads.mask_NL.numel()
    found = compute_losses(reader, None, reads, 4, config, is_hard=hard)
    nll, told = by_loops(reader, reads, 4, hard=hard, apart=apart)
    assert found.nll_B.tolist() == pytest.approx(nll, rel=1e-4)
    assert found.relevance_B.tolist() == pytest.approx(told, rel=1e-4)
    assert found.has_gold_B.tolist() == [value > 0 for value in nll]
    assert found.total(config).item() == pytest.approx(np.mean(nll) + 0.5 * np.mean(told), rel=1e-4)


def test_a_cpu_reads_eight_rows_at_a_time() -> None:
    lengths = [3, 40, 33, 20, 16, 17, 5, 4, 60, 1]
    found = [(0, MarkedWindow(window, set())) for window in map(window_of, lengths)]
    reads = collate(found, 1)
    assert [(rows.tolist(), longest) for rows, longest in reads.length_groups] == [
        ([8, 1, 2, 3, 5, 4, 6, 7], 60),  # 64 would be more than the batch has
        ([0, 9], 16),
    ]
    assert reads.tokens == 8 * 60 + 2 * 16


def window_of(length: int) -> Window:
    one = np.ones(1, dtype=bool)
    return Window(0, TokenInput([1] * length, 0), 0, np.zeros((1, 2), dtype=np.int64), 0, one, one)


def test_the_head_is_computed_in_float32(small: Path) -> None:
    torch.manual_seed(0)
    reader, hidden = SpanReader.from_encoder(small).eval(), []
    reader.encoder.register_forward_hook(lambda module, arguments, output: hidden.append(output.last_hidden_state))
    ids = torch.arange(30).reshape(2, 15) + 5
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            start, end, relevance = reader(ids, torch.ones_like(ids), torch.zeros_like(ids))
            rounded = reader.head(hidden[0])
        logits = reader.head(hidden[0].float())
    assert torch.equal(torch.stack([start, end], -1), logits[..., :2]) and torch.equal(relevance, logits[:, 0, 2])
    assert not torch.equal(rounded.float(), logits)


def test_what_a_teacher_counts(config: ReaderConfig, tmp_path: Path) -> None:
    """A quarter of the spans' part: 0.75 · 2 + 0.25 · 6 = 3, and 0.5 of the relevance 4, are 5; the other's are 2."""
    nll_B, relevance_B, kl_B = torch.tensor([[2.0, 0.0], [4.0, 4.0], [6.0, 0.0]])
    found = ReaderLosses(nll_B, relevance_B, kl_B, torch.tensor([True, False]))
    assert found.total(replace(config, teacher=tmp_path, teacher_weight=0.25, relevance=0.5)).item() == (5 + 2) / 2
    assert found.total(replace(config, relevance=0.5)).item() == (2 + 2 + 2) / 2


def test_a_teacher_that_is_the_reader_teaches_nothing(config: ReaderConfig, tmp_path: Path) -> None:
    config = replace(config, teacher=tmp_path)
    torch.manual_seed(1)
    reader, other = (SpanReader.from_encoder(config.encoder).eval() for _ in range(2))
    (reads,) = batches(config, tmp_path / "mined")[0]
    assert compute_losses(reader, reader, reads, 4, config, is_hard=False).kl_B.tolist() == pytest.approx(
        [0] * 4, abs=1e-5
    )
    assert compute_losses(reader, other, reads, 4, config, is_hard=False).kl_B.min() > 1e-4


def test_hard_em_warms_in(config: ReaderConfig) -> None:
    assert not any(is_hard_step(step, replace(config, loss="marginal", steps=100)) for step in range(100))
    config = replace(config, loss="hard", steps=4000, hard_warmup=0.5, warmup=None)
    told = np.array([is_hard_step(step, config) for step in range(4000)])
    wanted = np.minimum(np.arange(4000) / 2000, MAX_HARD_SHARE)
    for part in np.split(np.arange(4000), 8):
        assert told[part].mean() == pytest.approx(wanted[part].mean(), abs=0.1)


def test_parts_of_a_batch_come_to_the_whole(config: ReaderConfig, monkeypatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: torch.enable_grad())
    config = replace(config, dropout=0.0, dev=None, held_out=0.0, lr=1e-3)
    main(config)
    main(replace(config, out=config.out / "2", accumulate=2))
    whole, parts = figures(config.out), figures(config.out / "2")
    for name in ("loss", "span_nll", "relevance_bce", "right", "grad_norm"):
        assert [row[name] for row in parts] == pytest.approx([row[name] for row in whole], rel=1e-3)


# --- runs ---


def killed(monkeypatch: pytest.MonkeyPatch, at: int) -> Any:
    """Kill the run before this step; what was there before."""
    step = span_reader.train_step

    def kills(run: Any, *arguments: Any) -> None:
        if run.step == at:
            raise KeyboardInterrupt
        step(run, *arguments)

    monkeypatch.setattr(span_reader, "train_step", kills)
    return step


@pytest.mark.parametrize(("at", "taught"), [(2, False), (5, False), (5, True)])
def test_a_broken_run_takes_the_steps_of_an_unbroken_one(
    config: ReaderConfig, monkeypatch, at: int, taught: bool
) -> None:
    """Broken off before the first checkpoint, and after it."""
    config = replace(config, loss="hard", hard_warmup=0.1, accumulate=2)
    if taught:
        teacher = main(replace(config, out=config.out.with_name("teacher"), seed=1, steps=2))
        config = replace(config, teacher=teacher)
    whole = main(config)
    broken = replace(config, out=config.out.with_name("broken"))
    step = killed(monkeypatch, at)
    with pytest.raises(KeyboardInterrupt):
        main(broken)
    monkeypatch.setattr(span_reader, "train_step", step)
    resumed = main(broken)
    one, other = SpanReader.load(whole).state_dict(), SpanReader.load(resumed).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert figures(broken.out) == figures(config.out)
    assert [row["step"] for row in figures(config.out) if "span_nll" in row] == list(range(6))


def test_a_run_goes_on_in_the_precision_it_began_in(config: ReaderConfig, monkeypatch) -> None:
    """Whatever the clock says later, beside other work; on another machine it is timed anew."""
    monkeypatch.setattr(precision, "_cpu_has_instructions", lambda: True)
    monkeypatch.setattr(precision, "_bfloat16_takes_less", lambda: True)
    main(config)
    broken = replace(config, out=config.out.with_name("broken"))
    step = killed(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        main(broken)
    monkeypatch.setattr(span_reader, "train_step", step)
    monkeypatch.setattr(precision, "_bfloat16_takes_less", lambda: False)
    main(broken)
    assert figures(broken.out) == figures(config.out)

    def said() -> list[str]:
        found: list[str] = json.loads((broken.out / "config.json").read_text())["precision"]
        return found

    assert said() == ["bfloat16", describe_hardware()]
    monkeypatch.setattr("pipelines.common.run.describe_hardware", lambda: "another")
    main(broken)
    assert said() == ["float32", "another"] and not precision.bfloat16_is_fast("cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_it_learns_on_a_gpu_what_it_learns_on_a_cpu(config: ReaderConfig, device: str) -> None:
    config = replace(config, dropout=0.0, accumulate=2)
    main(config)
    there = replace(config, out=config.out.with_name("there"), device=device)
    main(there)
    here, other = ([row["loss"] for row in read_rows(each.out) if "loss" in row] for each in (config, there))
    assert len(here) == 6 and other == pytest.approx(here, rel=3e-2)
    assert SpanReader.load(there.out / "model").max_span == 4


def test_held_out_questions_are_asked_as_training_goes_on(config: ReaderConfig) -> None:
    told: list[str] = []
    main(config, notify=told.append)
    rows = [row for row in figures(config.out) if "em" in row]
    assert [row["step"] for row in rows] == [4, 6]  # not before anything is learned
    assert all(row["em"] == pytest.approx((row["gold_em"] + row["dev_em"]) / 2) for row in rows)
    assert told[0].startswith("questions to train on: ") and "are written, the best on held-out" in told[-1]
    saved = SpanReader.load(config.out / "model")
    assert (saved.max_tokens, saved.max_span, saved.config.reader) == (32, 4, "ends")
    scorer = load_scorer(config.out / "model")
    (scores,) = scorer.score([TokenInput([2, 10, 3, *range(20, 30), 3], 3)])
    assert scores.table(slice(3, 13), 30).shape == (10, 4), "spans that it never learned do not compete"


def test_what_is_written_answered_most(config: ReaderConfig, monkeypatch) -> None:
    values, seen = iter([0.1, 0.4, 0.3]), []

    def examined(reader: SpanReader, *_: Any) -> dict[str, float]:
        seen.append({name: value.clone() for name, value in reader.state_dict().items()})
        return {"em": next(values)}

    monkeypatch.setattr(span_reader, "evaluate", examined)
    written = SpanReader.load(main(replace(config, eval_every=2))).state_dict()
    assert all(torch.equal(written[name], value) for name, value in seen[1].items())
    assert not any(torch.equal(written["head.weight"], seen[other]["head.weight"]) for other in (0, 2))


def test_exams_are_taken_as_training_computes_and_without_titles(config: ReaderConfig) -> None:
    class Told:
        name = "told"

        def grade(self, reader: Any) -> dict[str, float]:
            return {"told_em": float(torch.is_autocast_enabled("cpu")), "training": float(model.training)}

    model = SpanReader.from_encoder(config.encoder).train()
    told: Any = Told()
    found = span_reader.evaluate(model, TextTokenizer(config.encoder), [told], config)
    assert found == dict.fromkeys(("told_em", "em"), float(precision.bfloat16_is_fast("cpu"))) | {"training": 0.0}
    assert model.training
    question = next(iter(read_questions(config.train[0])))
    (hits,) = make_gold_exam([question]).hits
    assert [(hit.passage.title, hit.passage.text) for hit in hits] == [("", question.passages[0])]


def test_a_run_goes_on_compiled(config: ReaderConfig, monkeypatch) -> None:
    config = replace(config, dev=None, held_out=0.0, dropout=0.0)
    step, compiled = killed(monkeypatch, 4), []
    with pytest.raises(KeyboardInterrupt):
        main(config)
    monkeypatch.setattr(span_reader, "train_step", step)
    monkeypatch.setattr(run, "compile_encoders", compiled.append)
    main(replace(config, compile=True))
    assert len(compiled) == 1 and [row["step"] for row in figures(config.out)] == list(range(6))


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert"])
def test_any_encoder_becomes_a_reader(family: str, config: ReaderConfig, tmp_path: Path) -> None:
    """Trained, exported to 8 bits and asked."""
    from transformers import AutoModel

    torch.manual_seed(0)
    encoder = tmp_path / "encoder"
    AutoModel.from_config(make_tiny_config(family, vocabulary=len(WORDS))).save_pretrained(encoder)
    (encoder / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    model = main(replace(config, encoder=encoder, steps=2))
    assert all(math.isfinite(row["loss"]) for row in figures(config.out) if "loss" in row)
    assert export(model, tmp_path / "onnx").config["max_span"] == 4
    items = [TokenInput([2, 10, 11, 3, 20, 21, 22, 3], 4), TokenInput([2, 10, 3, 30, 31, 3], 3)]
    whole, quantised = (load_scorer(path).score(items) for path in (model, tmp_path / "onnx"))
    for one, other in zip(whole, quantised, strict=True):
        assert np.corrcoef([*one.start, *one.end], [*other.start, *other.end])[0, 1] > 0.95
    text = "w5 w6 w7 w8"
    hit = Hit(Passage(0, "0", "w9", text, "", 0, len(text)), 0.0)
    (answer,) = ExtractiveReader(load_scorer(tmp_path / "onnx"), UNCALIBRATED).read(["w6"], [[hit]])
    assert answer.text is not None and answer.sources[0].span is not None
    assert text[answer.sources[0].span.start : answer.sources[0].span.end] == answer.text


def test_training_stops_where_nothing_gets_better(config: ReaderConfig, monkeypatch) -> None:
    values = iter([0.1, 0.4, 0.3, 0.2, 0.9])  # at steps 2, 4, 6 and 8
    monkeypatch.setattr(span_reader, "evaluate", lambda *_: {"em": next(values)})
    config = replace(config, steps=20, eval_every=2, patience=2)
    main(config)
    rows = figures(config.out)
    assert [row["em"] for row in rows if "em" in row] == [0.1, 0.4, 0.3, 0.2]
    assert max(row["step"] for row in rows if "loss" in row) == 7


def test_embeddings_stay_those_of_the_encoder(config: ReaderConfig) -> None:
    from transformers import AutoModel

    trained = SpanReader.load(main(config)).encoder.embeddings.word_embeddings.weight
    assert torch.equal(trained, AutoModel.from_pretrained(config.encoder).embeddings.word_embeddings.weight)
    free = replace(config, out=config.out.with_name("free"), freeze_embeddings=False)
    assert not torch.equal(trained, SpanReader.load(main(free)).encoder.embeddings.word_embeddings.weight)


def test_a_loss_that_is_not_finite_stops_before_the_step(config: ReaderConfig, monkeypatch) -> None:
    begun: list[Tensor] = []
    begin = span_reader.load_models

    def spoilt(*arguments: Any) -> Any:
        reader, teacher = begin(*arguments)
        reader.head.weight.data[:] = math.nan
        begun.extend([reader.encoder.encoder.layer[0].attention.self.query.weight] * 2)
        begun[1] = begun[0].detach().clone()
        return reader, teacher

    monkeypatch.setattr(span_reader, "load_models", spoilt)
    with pytest.raises(NonFiniteLoss, match="step 0"):
        main(replace(config, dev=None, held_out=0.0))
    assert torch.equal(*begun)


def test_patterns_are_answers(config: ReaderConfig, tmp_path: Path) -> None:
    file = tmp_path / "patterns.jsonl"
    rows = [json.loads(line) for line in config.train[1].read_text().splitlines()]
    file.write_text("".join(json.dumps({**row, "answers": [f"{row['answers'][0]}|nothing"]}) + "\n" for row in rows))
    main(replace(config, train=(), patterns=(file,), held_out=0.0, dev=None, steps=3))
    assert [row["right"] for row in figures(config.out)] == [1.0, 1.0, 1.0]


def test_a_teacher_of_the_same_wordpieces(config: ReaderConfig, tmp_path: Path) -> None:
    config = replace(config, dev=None, held_out=0.0, steps=2)
    teacher = main(replace(config, out=tmp_path / "teacher"))
    main(replace(config, teacher=teacher))
    assert all(row["kl"] > 0 for row in figures(config.out))
    tokenizer = json.loads((teacher / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {"w1": 7, "w2": 6}
    (teacher / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(BadInput, match="a reader of this recipe with the encoder's wordpieces is needed"):
        main(replace(config, out=tmp_path / "other", teacher=teacher))


def test_a_window_that_there_are_no_positions_for(config: ReaderConfig, tmp_path: Path) -> None:
    """Is not written down, and a teacher with a shorter one is refused."""
    from transformers import AutoModel

    short = tmp_path / "short"
    AutoModel.from_config(make_tiny_config("bert", vocabulary=len(WORDS))).save_pretrained(short)
    (short / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    config, told = replace(config, dev=None, held_out=0.0, steps=2, max_input=60), []
    made = main(replace(config, encoder=short, out=tmp_path / "made"), notify=told.append)
    assert told[0] == f"{short} reads 40 wordpieces at most: trained with these, not 60"
    assert json.loads((made / "config.json").read_text())["reader_tokens"] == SpanReader.load(made).max_tokens == 40
    with pytest.raises(BadInput, match="reads 40 wordpieces at most: lower --max-input to that"):
        main(replace(config, teacher=made))


@pytest.mark.parametrize(("name", "value"), [("reader_tokens", "many"), ("reader_span", -4)])
def test_a_configuration_that_cannot_be_meant(config: ReaderConfig, tmp_path: Path, name: str, value: Any) -> None:
    made = main(replace(config, dev=None, held_out=0.0, steps=2))
    settings = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**settings, name: value}))
    with pytest.raises(DamagedArtefact, match=f"says {name}: {value!r}"):
        export(made, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.thorough
def test_what_onnx_runtime_cannot_compute_is_not_exported(config: ReaderConfig, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModel

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    deberta = AutoConfig.for_model("deberta-v2", **sizes, **positions, vocab_size=len(WORDS), pad_token_id=0)
    SpanReader(AutoModel.from_config(deberta)).save(tmp_path / "deberta")
    (tmp_path / "deberta" / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    with pytest.raises(ArtefactError, match=r"cannot compute this model in 8 bits .*answer with its torch directory"):
        export(tmp_path / "deberta", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_reader_goes_on_from_what_it_has_learned(config: ReaderConfig, tmp_path: Path) -> None:
    config = replace(config, dev=None, held_out=0.0, steps=2)
    made = main(config)
    reader, _ = span_reader.load_models(replace(config, encoder=made, max_input=64), TextTokenizer(made))
    assert reader.max_tokens == 64  # as it is to be trained now, whatever it was before
    before = SpanReader.load(made)
    assert all(torch.equal(a, b) for a, b in zip(reader.parameters(), before.parameters(), strict=True))
    assert span_reader.derive_seed(config) == config.seed
    assert span_reader.derive_seed(replace(config, encoder=made)) != config.seed, "it would read the same once more"
    main(replace(config, encoder=made, out=tmp_path / "on"))


def test_it_learns_from_answers_alone(config: ReaderConfig) -> None:
    """Facts that were never asked are read off the passages that are found: what follows w50 is the answer."""
    config = replace(
        config, train=config.train[1:], steps=80, batch=8, lr=3e-3, warmup=8, dropout=0.0, eval_every=80, sample=10
    )
    main(config)
    rows = figures(config.out)
    values = [row["span_nll"] for row in rows if "span_nll" in row]
    # Such a small reader cannot tell the passages apart: it is sure of the span in each, and that costs log 2.
    assert sum(values[:5]) / 5 > 2.5 and sum(values[-5:]) / 5 < 0.8
    assert [row["dev_em"] for row in rows if "dev_em" in row][-1] >= 0.8


# --- what cannot be meant ---


def wrong(config: ReaderConfig, tmp_path: Path, case: str) -> ReaderConfig:
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"question": "w60 w61 w100", "answers": ["nowhere"]}\n')
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text('{"question": "w60", "answers": ["nowhere"], "passages": ["w1 w2"]}\n')
    options: dict[str, dict[str, Any]] = {
        "no index for pairs": {"index": None, "dev": None},
        "answers that stand nowhere": {"train": (strange,)},
        "answers that stand in no passage": {"train": (elsewhere,)},
        "no file": {"train": (tmp_path / "none.jsonl",)},
        "no index": {"index": tmp_path},
        "no vectors": {"retriever": "dense"},
        "no encoder": {"encoder": tmp_path},
        "somebody's directory": {"out": tmp_path},
        "nobody to ask": {"exclude": (config.dev,)},
        "nothing to wait for": {"patience": 2, "dev": None, "held_out": 0.0},
        "no teacher": {"teacher": tmp_path / "none"},
        "an export": {"encoder": weights_dir() / "reader"},
    }
    return replace(config, **options[case])


COMPLAINTS = {
    "no index for pairs": "train.jsonl: questions without passages need --index to find some",
    "answers that stand nowhere": "strange.jsonl: the index finds no passage that holds an answer",
    "answers that stand in no passage": "no question names a passage where its answer stands",
    "no file": "none.jsonl cannot be read",
    "no index": "is not a ragqa directory",
    "no vectors": "cannot do dense",
    "no encoder": "has no tokenizer.json",
    "somebody's directory": "is no run, but holds .* of something else",
    "nobody to ask": "all questions that would be asked stand in a file of --exclude",
    "nothing to wait for": "--patience waits for held-out questions: give --dev, or",
    "no teacher": "is not a reader",
    "an export": "is an export: ragqa.runtime.restore makes torch weights of it",
}


@pytest.mark.parametrize("case", COMPLAINTS)
def test_bad_input_is_one_clear_line(config: ReaderConfig, tmp_path: Path, case: str) -> None:
    from ragqa.errors import RagqaError

    with pytest.raises(RagqaError, match=COMPLAINTS[case]) as caught:
        main(wrong(config, tmp_path, case))
    assert "\n" not in str(caught.value)
    assert not (config.out / "model").exists()


def test_all_wrong_settings_are_named_at_once(config: ReaderConfig) -> None:
    with pytest.raises(BadInput, match=r"negatives = -1.*: out of range"):
        replace(config, negatives=-1, batch=0)
    with pytest.raises(BadInput, match=r"batch = 0, .*shares = "):
        replace(config, shares=(1.0,), batch=0)
    with pytest.raises(BadInput, match=r"accumulate = 3: out of range \(accumulate: a divisor of the batch, 4\)"):
        replace(config, accumulate=3)
    with pytest.raises(BadInput, match=r"per_passage: without a teacher"):
        replace(config, per_passage=True, teacher=config.encoder)
    with pytest.raises(BadInput, match=r"--train or --patterns is needed"):
        replace(config, train=())
    with pytest.raises(BadInput, match="give --index, too"):
        replace(config, index=None)


def test_schedule_by_hand() -> None:
    rates = [warmup_linear(step, peak=1.0, warmup=2, total=6) for step in range(7)]
    assert rates == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
