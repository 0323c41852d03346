"""Batches of a span reader, and the passages sampled for them."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.common.examples.data_sets import read_training_sets
from pipelines.common.examples.mining import QuestionFile
from pipelines.common.examples.passage_sampler import (
    MinedPassages,
    PassageMix,
    PassageSampler,
    TitledText,
    sample_ranks,
)
from pipelines.common.questions import draw_stretch
from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.data import POOL_BATCHES, apportion
from pipelines.span_reader.gold_passages import write_gold_passages
from ragqa.artefacts.paths import get_weights_dir
from ragqa.corpus.splitters import make_word_splitter
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.retrieval.live import open_retriever
from ragqa.runtime.tokens import TextTokenizer
from tests.helpers import tiny
from tests.helpers.span_reader import make_batches, make_config, write_squad


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.TinyWorld, tmp_path: Path) -> ReaderConfig:
    return make_config(small, world, tmp_path)


def sample_passages(
    sampler: PassageSampler, number: int, rng: np.random.Generator
) -> tuple[list[TitledText], list[TitledText]]:
    sampled = sampler.sample(number, rng)
    return sampled.positives, sampled.negatives


def test_a_batch_depends_only_on_seed_and_step(config: ReaderConfig, tmp_path: Path) -> None:
    one, other = make_batches(config, tmp_path / "mined"), make_batches(config, tmp_path / "mined")
    for step in (0, 60, 3):
        (batch,), (other_batch,) = one[step], other[step]
        assert all(torch.equal(getattr(batch, name), getattr(other_batch, name)) for name in vars(batch))


def test_exactly_the_gold_spans_are_marked(config: ReaderConfig, tmp_path: Path) -> None:
    batches = make_batches(config, tmp_path / "mined", positives=2, distant=2, negatives=2.0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"w{i}" for i in range(1100)]]
    for step in range(5):
        (reads,) = batches[step]
        for n in range(len(reads.ids_NL)):
            question, _ = batches.sampler.questions[batches.get_questions(step)[int(reads.question_N[n])]]
            texts = [words[i] for i in reads.ids_NL[n].tolist()]
            first = max(at for at, word in enumerate(texts[:-1]) if word == "[SEP]" and "[SEP]" in texts[at + 1 :]) + 1
            expected = {(at, 0) for at, word in enumerate(texts) if at >= first and word == question.answers[0]}
            assert {tuple(each) for each in reads.correct_NLW[n].nonzero().tolist()} == expected
            assert all(reads.possible_NLW[n][place] for place in expected)


def test_files_have_exactly_their_shares_of_a_pool(config: ReaderConfig) -> None:
    assert apportion([1, 1, 1], 10) == [4, 3, 3]
    assert apportion([0.3, 0.7], 200) == [60, 140]
    config = replace(config, train=(config.train[0], write_squad(config.out.with_name("other.json"))), shares=(3, 1))
    batches = make_batches(config)
    size = len(batches.sampler.questions) // 2
    for pool in (0, 1):
        counts = Counter(
            number // size
            for step in range(pool * POOL_BATCHES, (pool + 1) * POOL_BATCHES)
            for number in batches.get_questions(step)
        )
        assert counts == {0: 150, 1: 50}


def test_each_epoch_draws_every_question_once() -> None:
    epochs = [draw_stretch(7, 3, first, 7) for first in (0, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs) and epochs[0] != epochs[1]
    assert draw_stretch(7, 3, 5, 4) == [*epochs[0][5:], *epochs[1][:2]]


def test_passages_of_a_batch_have_similar_lengths(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    rng = np.random.default_rng(0)
    rows = [
        {"question": f"w{n}", "answers": ["w1"], "passages": ["w1 " * int(rng.integers(1, 90))]} for n in range(200)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=8, max_input=100)
    batches = make_batches(config, negatives=0.0)
    padding = [1 - float(reads.mask_NL.float().mean()) for step in range(POOL_BATCHES) for reads in batches[step]]
    assert np.mean(padding) < 0.1
    lengths = [batches[step][0].ids_NL.shape[1] for step in range(POOL_BATCHES)]
    assert np.corrcoef(np.arange(POOL_BATCHES), lengths)[0, 1] < 0.5  # batches are not in order of their lengths


@pytest.mark.parametrize(("negatives", "count"), [(0.0, 0.0), (0.3, 0.3), (2.5, 2.5)])
def test_the_mean_number_of_negatives_is_as_set(
    config: ReaderConfig, tmp_path: Path, negatives: float, count: float
) -> None:
    sampler = make_batches(config, tmp_path / "mined", negatives=negatives, hard=1.0).sampler
    pairs = range(len(sampler.questions) - 30, len(sampler.questions))
    rng = np.random.default_rng(0)
    samples = [(number, *sample_passages(sampler, number, rng)) for _ in range(20) for number in pairs]
    assert np.mean([len(wrong) for _, _, wrong in samples]) == pytest.approx(count, abs=0.15)
    for number, right, wrong in samples:
        assert [sampler.holds_answer(text, number) for _, text in (*right, *wrong)] == [True] + [False] * len(wrong)


def test_gold_passages_come_first_and_random_negatives_hold_no_answer(config: ReaderConfig, tmp_path: Path) -> None:
    beside = {"positives": 2, "distant": 2, "negatives": 3.0, "hard": 0.0, "untitled": 0.0}
    sampler, rng = make_batches(config, tmp_path / "mined", **beside).sampler, np.random.default_rng(0)
    for number, (question, _) in enumerate(sampler.questions):
        right, wrong = sample_passages(sampler, number, rng)
        if question.passages:
            assert right[0] == (question.titles[0], question.passages[0])
        assert 1 <= len(right) <= 2 and all(sampler.holds_answer(text, number) for _, text in right)
        assert not any(sampler.holds_answer(text, number) for _, text in wrong)


@pytest.fixture
def articles(small: Path, tmp_path: Path) -> ReaderConfig:
    """Write six articles of four paragraphs of 250 words; an index divides each paragraph into three blocks."""
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


def sample_repeatedly(sampler: PassageSampler) -> Iterator[tuple[int, list[TitledText], list[TitledText]]]:
    rng = np.random.default_rng(1)
    return (
        (number, *sample_passages(sampler, number, rng)) for _ in range(8) for number in range(len(sampler.questions))
    )


@pytest.mark.parametrize("hard", [0.0, 1.0])
def test_length_and_edges_of_a_passage_do_not_reveal_its_label(
    articles: ReaderConfig, tmp_path: Path, hard: float
) -> None:
    sampler = make_batches(articles, tmp_path / "mined", hard=hard).sampler
    golds = {question.passages[0] for question, _ in sampler.questions}
    starts, ends = {text[:30] for text in golds}, {text[-30:] for text in golds}
    shares = []
    for part in zip(*((right, wrong) for _, right, wrong in sample_repeatedly(sampler)), strict=True):
        texts = [text for passages in part for _, text in passages]
        assert len(texts) > 400 and {len(text.split()) for text in texts} == {50, 100, 250}
        edges = [(text in golds, text[:30] in starts, text[-30:] in ends) for text in texts]
        shares.append(np.mean(edges, axis=0))
    assert shares[0][0] == pytest.approx(0.5, abs=0.06)
    assert shares[0] == pytest.approx(shares[1], abs=0.1)


def test_answers_stay_marked_in_blocks_and_paragraphs(articles: ReaderConfig, tmp_path: Path) -> None:
    batches = make_batches(articles, tmp_path / "mined")
    lengths = set()
    for step in range(20):
        (reads,) = batches[step]
        marked = reads.correct_NLW.flatten(1).any(-1)
        assert marked.tolist() == (reads.rank_N == 0).tolist()
        lengths |= {int(length) // 50 for length in reads.mask_NL[marked].sum(-1)}
    assert {1, 2, 5} <= lengths  # blocks of 50 and 100 words and paragraphs of 250


def test_the_share_of_whole_paragraphs_is_respected_at_0_and_1(articles: ReaderConfig, tmp_path: Path) -> None:
    sampler = make_batches(articles, tmp_path / "mined", whole=1.0, hard=1.0, untitled=0.0).sampler
    for number, right, wrong in sample_repeatedly(sampler):
        question, _ = sampler.questions[number]
        assert right == [(question.titles[0], question.passages[0])]
        (title, text) = wrong[0]
        assert len(text.split()) == 250 and title == question.titles[0] and text != question.passages[0]
        assert not sampler.holds_answer(text, number)
    sampler = make_batches(articles, tmp_path / "mined", whole=0.0).sampler
    for number, right, wrong in sample_repeatedly(sampler):
        assert all(len(text.split()) <= 100 for _, text in (*right, *wrong))
        assert sampler.holds_answer(right[0][1], number) and right[0][1] in sampler.questions[number][0].passages[0]
    # Without an index, paragraphs are divided in the same way.
    sampler = make_batches(replace(articles, index=None), whole=0.0).sampler
    assert all(
        len(text.split()) <= 100 for _, right, wrong in sample_repeatedly(sampler) for _, text in (*right, *wrong)
    )


def test_an_article_with_one_paragraph_gets_negatives_of_other_articles(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "qed.jsonl"
    rows = [
        {"question": "w1", "answers": [f"w{n + 5}"], "passages": [f"w{n + 5} w{n}"], "titles": [f"{n}"]}
        for n in range(9)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=4)
    sampler = make_batches(config, whole=1.0, hard=1.0, untitled=0.0).sampler
    for _, right, wrong in sample_repeatedly(sampler):
        assert all(each != right[0] and each[1].endswith(f" w{each[0]}") for each in wrong)


def test_a_question_without_gold_passages_is_read_in_several_mined_ones(config: ReaderConfig, tmp_path: Path) -> None:
    assert config.index is not None
    sets, _ = read_training_sets([QuestionFile(config.train[1])], share=0.0)
    found = [MinedPassages(np.array([7, 5, 3, 1]), np.array([0]))] * len(sets[0].questions)
    store = open_retriever(config.index).passages
    mix = PassageMix(positives=1, distant=3, negatives=0.0, hard=0.0, whole=0.5, untitled=0.0)
    sampler = PassageSampler(sets, found, store, make_word_splitter(), mix)
    rng = np.random.default_rng(0)
    samples = [[text for _, text in sampler.sample(0, rng).positives] for _ in range(300)]
    assert all(len(set(texts)) == 3 and set(texts) < {store[row].text for row in (7, 5, 3, 1)} for texts in samples)
    left_out = Counter(next(row for row in (7, 5, 3, 1) if store[row].text not in texts) for texts in samples)
    assert left_out[7] < left_out[5] < left_out[1]


def test_better_ranks_are_drawn_more_often() -> None:
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
def test_a_passage_whose_answer_cannot_be_marked_is_not_read(
    tmp_path: Path, answer: str, text: str, width: int
) -> None:
    file = tmp_path / "gold.jsonl"
    rows = [
        {"question": "When was the mill built?", "answers": [answer], "passages": [text]},
        {"question": "When did it close?", "answers": ["May"], "passages": ["It closed in May."]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ReaderConfig(train=(file,), encoder=get_weights_dir() / "encoder", out=tmp_path, batch=2, max_span=width)
    batches = make_batches(config, negatives=1.0, hard=0.0, whole=1.0)
    tokenizer, read = TextTokenizer(config.encoder), Counter()
    texts = [tokenizer.tokenize(row["passages"][0]).ids for row in rows]
    for step in range(10):
        (reads,) = batches[step]
        for n in range(len(reads.ids_NL)):
            number, ids = batches.get_questions(step)[int(reads.question_N[n])], reads.ids_NL[n].tolist()
            which = next((row for row, pieces in enumerate(texts) if str(pieces)[1:-1] in str(ids)), None)
            read[number, which] += 1  # None: neither of the two passages
            assert bool(reads.correct_NLW[n].any()) == (number == which == 1)
    assert read[0, 0] == 0 and min(read[0, 1], read[1, 0], read[1, 1]) > 0


def test_the_window_of_a_long_passage_holds_the_answer(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    text = " ".join(["w2"] * 60 + ["w7"] + ["w3"] * 60)
    file.write_text(json.dumps({"question": "w9", "answers": ["w7"], "passages": [text]}))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=1, max_input=32)
    batches = make_batches(config, negatives=0.0)
    for step in range(10):
        (reads,) = batches[step]
        assert reads.ids_NL.shape[1] <= 32 and int(reads.correct_NLW.sum()) == 1
        assert bool((reads.correct_NLW <= reads.possible_NLW).all())


def test_a_question_without_wordpieces_to_read_gets_a_blank_window(small: Path, tmp_path: Path, monkeypatch) -> None:
    """Training leaves such questions out, but a sampled passage can have no wordpieces."""
    monkeypatch.setattr("pipelines.common.examples.data_sets._is_answered_by_gold", lambda *_: True)
    file = tmp_path / "blank.jsonl"
    file.write_text(json.dumps({"question": "w9", "answers": ["w7"], "passages": ["\u200b"]}))
    (reads,) = make_batches(ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=1), negatives=0.0)[0]
    assert len(reads.ids_NL) == 1 and not reads.correct_NLW.any()


def test_a_share_of_the_questions_loses_its_answers(config: ReaderConfig, tmp_path: Path) -> None:
    batches = make_batches(config, tmp_path / "mined", unanswerable=0.5, negatives=1.0)
    sampler, rng = batches.sampler, np.random.default_rng(0)
    samples = [sampler.sample(number, rng) for _ in range(10) for number in range(len(sampler.questions))]
    without = [sampled for sampled in samples if not sampled.positives]
    assert len(without) / len(samples) == pytest.approx(0.5, abs=0.08)
    assert all(sampled.negatives and sampled.answers == () for sampled in without)
    marked = [bool(part.correct_NLW.any()) for step in range(20) for part in batches[step]]
    assert any(marked)


def test_a_near_miss_is_read_in_the_passage_that_answered_the_question(tmp_path: Path, small: Path) -> None:
    text = "Mary lived in Rome in 1921 and won the first prize."
    question = {"id": "1", "question": "What did Mary win in 1921?", "answers": [{"text": "prize", "answer_start": 45}]}
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"data": [{"title": "Mary", "paragraphs": [{"context": text, "qas": [question] * 3}]}]}))
    config = ReaderConfig(train=(file,), encoder=small, out=tmp_path, batch=4, held_out=0.0)
    sampler = make_batches(config, near_misses=1.0, negatives=0.0, whole=1.0, untitled=0.0).sampler
    sampled = sampler.sample(0, np.random.default_rng(0))
    assert sampled.text != "What did Mary win in 1921?" and sampled.answers == ()
    assert not sampled.positives and sampled.negatives == [("Mary", text)]
