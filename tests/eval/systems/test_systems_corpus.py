"""The corpus of the tables of systems holds the gold passages, and no training question is held out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval.systems import corpus
from eval.systems.corpus import CorpusConfig, detokenize
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.question_files import read_questions
from tests.helpers.data_sets import HELD_OUT, TRAINED, write_data_sets


@pytest.fixture(scope="module")
def made_corpus(tmp_path_factory: pytest.TempPathFactory) -> CorpusConfig:
    data = write_data_sets(tmp_path_factory.mktemp("data"))
    config = CorpusConfig(data=data, out=tmp_path_factory.mktemp("corpora") / "corpus", blocks=60, recall=12, dev=8)
    corpus.main(config)
    return config


def texts(file: Path) -> list[str]:
    return [question.text for question in read_questions(file)]


@pytest.mark.parametrize(
    ("spaced", "prose"),
    [
        ("Super Bowl XXXII ( played in 1998 ) , won .", "Super Bowl XXXII (played in 1998), won."),
        ("He said `` no '' . It was n't his father 's", "He said \"no\". It wasn't his father's"),
        ("a first - class town -- $ 9.8 million / 5 %", "a first-class town – $9.8 million/5%"),
        ("25 ° N", "25° N"),
        ("nothing to mend (at all)", "nothing to mend (at all)"),
    ],
)
def test_tokenised_texts_become_prose(spaced: str, prose: str) -> None:
    assert detokenize(spaced) == prose


def test_the_test_files_of_all_suites_are_left_out_of_training() -> None:
    of_suites = ("nq/test-a.jsonl", "webq/test-a.jsonl", "curatedtrec/test-a.jsonl", "squad/dev-a-v1.1.json.xz")
    assert set(of_suites) <= set(corpus.TESTS)


def test_the_corpus_holds_each_gold_passage_once_and_whole_articles(made_corpus: CorpusConfig) -> None:
    report = json.loads((made_corpus.out / "report.json").read_text())
    # Gold passages: 2 different ones of NQ, 6 of SQuAD and 10 of QED, so 18 blocks. 42 remain: 14 articles of 3.
    assert (report["documents"], report["blocks"]) == (18 + 14, 60)
    store = PassageStore.open(made_corpus.out / "corpus.index" / "passages")
    passages = [passage for batch in store.iter_batches() for passage in batch]
    assert not any(
        passage.text == "w170 w50 w670" for passage in passages
    )  # an article that SQuAD also has is left out
    assert any(passage.text == "w150 w50 w650 w1 w2." for passage in passages)


def test_a_corpus_is_a_function_of_its_settings(made_corpus: CorpusConfig, tmp_path: Path) -> None:
    repeated = replace(made_corpus, out=tmp_path / "again")
    report = corpus.main(repeated)
    for file in ("documents.jsonl", "report.json", *(f"questions/{name}.jsonl" for name in ("recall", "dev", "train"))):
        assert (repeated.out / file).read_bytes() == (made_corpus.out / file).read_bytes(), file
    assert corpus.main(repeated) == report
    corpus.main(replace(made_corpus, out=tmp_path / "other", seed=1))
    assert (tmp_path / "other" / "documents.jsonl").read_bytes() != (made_corpus.out / "documents.jsonl").read_bytes()


def test_impossible_sizes_are_refused(made_corpus: CorpusConfig, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds a corpus with other settings"):
        corpus.main(replace(made_corpus, blocks=61))
    with pytest.raises(BadInput, match="--blocks 17: the gold passages alone need 18"):
        corpus.main(replace(made_corpus, out=tmp_path / "small", blocks=17))
    with pytest.raises(BadInput, match="--recall 29 --dev 8: NQ dev has only 30 questions"):
        corpus.main(replace(made_corpus, out=tmp_path / "few", recall=29))


def test_no_training_question_is_held_out(made_corpus: CorpusConfig) -> None:
    recall, dev, train = (texts(made_corpus.out / "questions" / f"{name}.jsonl") for name in ("recall", "dev", "train"))
    assert (len(recall), len(dev)) == (12, 8) and not set(recall) & set(dev)
    assert set(recall) | set(dev) <= set(texts(made_corpus.data / "nq/dev.jsonl"))
    assert ("The w60, w103 w1?" in train) == ("w60 w103 w1" not in {*recall, *dev})
    first = next(read_questions(made_corpus.out / "questions" / "train.jsonl"))
    assert (first.text, first.passages) == ("w61 w150", ("w150 w50 w650 w1 w2.",))


def test_squad_train_adds_its_paragraphs_and_questions(made_corpus: CorpusConfig, tmp_path: Path) -> None:
    config = replace(made_corpus, out=tmp_path / "both", blocks=70, squad_train=True)
    report = corpus.main(config)
    assert report["questions"]["dev"] == 16
    dev, train = ({q.titles for q in read_questions(config.out / "questions" / f"{n}.jsonl")} for n in ("dev", "train"))
    assert (HELD_OUT,) in dev and (TRAINED,) in train and (HELD_OUT,) not in train
