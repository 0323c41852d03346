"""The ablation: what its corpus and its questions are made of, and a run of its arms in a world of made-up words."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from data_folder import ask, lines, put, write

from eval import ablation, ablation_corpus, ablation_questions
from eval.ablation import ARMS, USUAL, Places
from eval.ablation_corpus import Article, CorpusConfig, Said, bare, choose, drawn, filled
from eval.ablation_sizes import SMOKE, Sizes
from eval.ablation_sources import NQ_DEV, plain
from eval.ablation_table import table
from eval.bench import ablation as bench
from eval.chance import Chance
from eval.suite import Split, Suite
from pipelines.orqa import inverse_cloze
from pipelines.realm import pretrain
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.questions import read_questions
from ragqa.types import Question


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder; the words are those of the encoder ``small``."""
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> CorpusConfig:
    config = CorpusConfig(data=data, out=tmp_path_factory.mktemp("corpus") / "c", blocks=60, recall=12, dev=8)
    ablation_corpus.make(config)
    return config


def test_titles_that_are_said() -> None:
    said = Said(
        ["who shot J. R. in Dallas", "what is Dallas", "a river of texas", "texas", "texas?", "Texas, is it in 1812"]
    )
    assert "J. R. (film)" in said and "The Dallas" in said
    assert "In Dallas" in said and "Dallas in" not in said
    assert "River" in said and "Rive" not in said
    assert "Texas" not in said  # four of them say it
    assert "1812" not in said and "is" not in said  # no word, too short
    assert "who" not in said and "" not in said


def test_titles_are_compared_without_brackets_at_their_end() -> None:
    assert bare("The Wild Card (sports)") == "wild card"
    assert bare("(I) Robot") == "i robot"


def test_articles_are_drawn_by_seed_and_id_alone() -> None:
    articles = [Article(str(n), 1, False) for n in range(20)]
    first = [each.id for each in drawn(articles, 0)]
    assert first == [each.id for each in drawn(articles[::-1], 0)]
    assert first != [each.id for each in drawn(articles, 1)] and sorted(first) == sorted(each.id for each in articles)
    without = [each for each in articles if each.id != first[3]]
    assert [each.id for each in drawn(without, 0)] == first[:3] + first[4:]


def test_articles_are_taken_whole_until_one_does_not_fit() -> None:
    articles = [Article("a", 3, True), Article("b", 4, True), Article("c", 3, True), Article("d", 1, True)]
    assert [each.id for each in filled(articles, 9)] == ["a", "b"]
    assert filled(articles, 2) == []


def test_articles_that_are_said_have_three_quarters_of_the_room() -> None:
    articles = [Article(str(n), 1, n < 50) for n in range(1000)]
    chosen = choose(articles, 40, 0)
    said = [name for name, source in chosen.items() if source == "said"]
    assert len(chosen) == 40 and len(said) == 30 and all(int(name) < 50 for name in said)
    assert chosen == choose(articles, 40, 0) and chosen != choose(articles, 40, 1)


@pytest.mark.parametrize(
    ("apart", "whole"),
    [
        ("Super Bowl XXXII ( played in 1998 ) , won .", "Super Bowl XXXII (played in 1998), won."),
        ("He said `` no '' . It was n't his father 's", "He said \"no\". It wasn't his father's"),
        ("a first - class town -- $ 9.8 million / 5 %", "a first-class town – $9.8 million/5%"),
        ("\ufeff25 ° N", "25° N"),
        ("nothing to mend (at all)", "nothing to mend (at all)"),
    ],
)
def test_texts_whose_words_stand_apart_are_set_as_prose(apart: str, whole: str) -> None:
    assert plain(apart) == whole


def test_the_corpus_holds_what_is_known_once_and_then_articles(made: CorpusConfig) -> None:
    report = json.loads((made.out / "report.json").read_text())
    sources = report["sources"]
    assert {name: sources[name] for name in ("nq-gold", "squad", "qed")} == {
        "nq-gold": {"documents": 2, "blocks": 2},  # of four, two are the others again
        "squad": {"documents": 6, "blocks": 6},
        "qed": {"documents": 10, "blocks": 10},
    }
    # 42 blocks are left, an article has 3, and the title of each is said: ten have three quarters of the room
    assert sources["said"] == {"documents": 10, "blocks": 30} and sources["random"] == {"documents": 4, "blocks": 12}
    assert sources["wiki folder"] == {"articles": 30, "said": 30, "blocks said": 90, "texts left out": 3}
    assert report["blocks"] == 60
    store = PassageStore.open(made.out / "corpus.index" / "passages")
    passages = [passage for some in store.iter_batches() for passage in some]
    assert "wiki-7" not in {passage.document for passage in passages}  # an article of SQuAD dev-a
    assert any(passage.text == "w150 w50 w650 w1 w2." for passage in passages)
    assert report["answered"]["squad dev-a"] == {"questions": 6, "answered": 6, "share": 1.0}
    articles = {int(passage.document[5:]) for passage in passages if passage.document.startswith("wiki-")}
    assert report["answered"]["nq dev, all"]["answered"] == len(articles | {100, 101})  # two by gold passages, too


def test_a_corpus_is_made_twice_the_same(made: CorpusConfig, tmp_path: Path) -> None:
    again = replace(made, out=tmp_path / "again")
    report = ablation_corpus.make(again)
    for file in ("documents.jsonl", "report.json", *(f"questions/{name}.jsonl" for name in ("recall", "dev", "train"))):
        assert (again.out / file).read_bytes() == (made.out / file).read_bytes(), file
    assert ablation_corpus.make(again) == report
    ablation_corpus.make(replace(made, out=tmp_path / "other", seed=1))
    assert (tmp_path / "other" / "documents.jsonl").read_bytes() != (made.out / "documents.jsonl").read_bytes()


def test_a_corpus_of_other_settings_is_refused(made: CorpusConfig, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds a corpus of other settings"):
        ablation_corpus.make(replace(made, blocks=61))
    with pytest.raises(BadInput, match="the known texts alone are 18 blocks: ask for more than 17"):
        ablation_corpus.make(replace(made, out=tmp_path / "small", blocks=17))
    assert not (tmp_path / "small" / "documents.jsonl").exists()


def texts(file: Path) -> list[str]:
    return [question.text for question in read_questions(file)]


def test_questions_are_kept_apart(made: CorpusConfig, data: Path) -> None:
    folder = made.out / "questions"
    recall, dev, train = (texts(folder / f"{name}.jsonl") for name in ("recall", "dev", "train"))
    assert (len(recall), len(dev)) == (12, 8) and not set(recall) & set(dev)
    assert set(recall) | set(dev) <= set(texts(data / NQ_DEV))
    # 33 of NQ and 11 of QED: "The w60, w103 w1?" is asked in dev, two stand there twice
    assert len(train) == 42 and "The w60, w103 w1?" not in train and train.count("w61 w140") == 1
    assert json.loads((made.out / "report.json").read_text())["questions"] == {
        "recall": 12,
        "dev": 8,
        "train": 42,
        "twice": 1,
        "held_out": 1,
    }
    first = next(read_questions(folder / "train.jsonl"))
    assert (first.text, first.passages) == ("w61 w150", ("w150 w50 w650 w1 w2.",))


def test_of_equal_questions_the_one_with_a_passage_is_trained_on() -> None:
    poor, rich = Question("Who?", ("a",), "1"), Question("who", ("a",), "2", passages=("p",))
    assert ablation_questions.training([poor, rich, Question("The x", ("b",), "3")], {"x"}) == ([rich], 1, 1)


def test_paraphrases_of_training_questions_are_told() -> None:
    """Of the words that count 4 of 5, then 4 of 6, then 3 of 6 are in both."""
    train = [Question("who wrote the song house of the rising sun", ()), Question("when was it built", ())]
    asked = ["who wrote house of the rising sun", "song house rising sun cover", "who sang house of the rising sun"]
    kept = ablation_questions.unlike([Question(text, ()) for text in asked], train)
    assert [question.text for question in kept] == [asked[2]]


def test_chance_draws_other_passages_for_each_question(made: CorpusConfig) -> None:
    chance = Chance(PassageStore.open(made.out / ablation_corpus.INDEX / "passages"))
    one, other, again = chance.rank(["who", "when", "who"], 60)
    assert sorted(one.rows) == list(range(60)) and list(one.rows) == list(again.rows) != list(other.rows)


def test_too_few_questions_to_draw_from_are_refused() -> None:
    with pytest.raises(BadInput, match=r"2 \+ 1 questions are wanted of 2 different ones"):
        ablation_questions.split([Question(text, ("a",), text) for text in ("x", "y", "The X.")], 2, 1, 0)


def test_a_training_question_of_a_held_out_file_is_refused_in_a_line(
    made: CorpusConfig, data: Path, tmp_path: Path
) -> None:
    train = made.out / "questions" / "train.jsonl"
    held_out = [data / file for file in ablation_questions.HELD_OUT]
    ablation_questions.check_apart(train, held_out)
    put(tmp_path / "train.jsonl", train.read_text() + lines([ask("What is the w63 w170?", "w670")]))
    put(dev := tmp_path / "dev.jsonl", lines([ask("what is w63 W170", "w670")]))
    with pytest.raises(BadInput) as refused:
        ablation_questions.check_apart(tmp_path / "train.jsonl", [*held_out, dev])
    (line,) = str(refused.value).splitlines()
    assert line.endswith(f"asks 'What is the w63 w170?', which is held out in {dev}: it must not be trained on")


def places(root: Path) -> Places:
    return Places(work=root, corpus=Path("c"), encoder=Path("e"), data=Path("d"))


def test_each_arm_differs_from_the_full_one_in_what_it_is_named_for() -> None:
    full = asdict(ablation.pretraining(places(Path("w")), Sizes(), "full"))
    for name, expected in {
        "stale": {"refresh_every": None},
        "no-null": {"null": False, "k": Sizes().k - 1},  # as many passages are retrieved
        "spans": {"masking": "spans"},
        "uniform": {"masking": "uniform"},
    }.items():
        own = asdict(ablation.pretraining(places(Path("w")), Sizes(), name))
        changed = {key: value for key, value in own.items() if value != full[key]}
        assert changed == {"out": Path("w") / name / "pretrain", **expected}
    assert full["null"] and full["masking"] == "salient" and full["k"] == Sizes().k


def test_the_warm_start_is_shared_by_all_that_begin_from_the_same_encoder() -> None:
    outs = {name: ablation.cloze(places(Path("w")), Sizes(), ARMS[name]).out for name in USUAL if name != "minilm"}
    assert set(outs.values()) == {Path("w/cloze")}
    with pytest.raises(BadInput, match="--minilm"):
        ablation.cloze(places(Path("w")), Sizes(), ARMS["from-minilm"])


def test_the_reader_begins_from_what_the_arm_pretrained_or_from_the_warm_up() -> None:
    tuned = {name: ablation.tuning(places(Path("w")), Sizes(), name, Path("r")) for name in ("full", "orqa", "dpr")}
    assert {name: each.encoder for name, each in tuned.items()} == {
        "full": Path("w/full/pretrain/reader"),
        "orqa": Path("w/reading/model"),
        "dpr": Path("w/reading/model"),
    }
    assert [each.freeze_retriever for each in tuned.values()] == [False, False, True]


def cut(suite: Suite, questions: int) -> Suite:
    """A suite whose usual split is as small as the data."""
    file = suite.splits[suite.default_split].file
    return replace(suite, splits={suite.default_split: Split(file=file, questions=questions)})


@pytest.fixture
def command(made: CorpusConfig, data: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bench at the size of a smoke test, its suites as small as the data."""
    torch.manual_seed(0)
    KnowledgeAugmentedEncoder.from_config(small).save(tmp_path / "encoder")
    suites = tuple(map(cut, bench.SUITES, (10, 6)))
    monkeypatch.setattr(bench, "SUITES", suites)
    where = {"--work": "work", "--encoder": "encoder", "--out": "ablation.json"}
    options = [part for option, name in where.items() for part in (option, str(tmp_path / name))]
    return [*options, "--corpus", str(made.out), "--data", str(data), "--smoke"]


def never(*arguments: Any, **options: Any) -> None:
    raise AssertionError("this stage is finished")


def test_recall_of_small_arms_goes_on_where_it_was(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ["--arms", "bm25", "orqa", "full", "--stages", "recall"]
    step = pretrain.train_step

    def killed(run: Any, *others: Any, **options: Any) -> Any:
        if run.step == 2:
            raise KeyboardInterrupt
        return step(run, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "train_step", killed)
        with pytest.raises(SystemExit):
            bench.main([*command, *arms])
    assert {file.parent.name for file in (tmp_path / "work").glob("*/recall.json")} == {"bm25", "orqa"}
    monkeypatch.setattr(inverse_cloze, "train_step", never)
    bench.main([*command, *arms])
    monkeypatch.setattr(pretrain, "train_step", never)
    bench.main([*command, *arms])
    figures = json.loads((tmp_path / "ablation.json").read_text())
    assert [row["arm"] for row in figures["rows"]] == ["bm25", "orqa", "full"]
    for row in figures["rows"]:
        assert row["questions"] == 12 and set(row["recall"]) == {"1", "5", "20"}
        assert row["recall"]["5"]["low"] <= row["recall"]["5"]["value"] <= row["recall"]["5"]["high"]
        assert row["recall"]["20"]["value"] <= row["ceiling"]["corpus"]
    assert figures["rows"][0]["less full"]["recall"]["answer_recall"]["20"]["p"] <= 1
    assert figures["corpus made of"]["blocks"] == 60 and figures["sizes"] == asdict(SMOKE)
    drawn = table(figures).splitlines()
    assert drawn[2].startswith("| BM25 | ") and drawn[4].startswith("| REALM, full | ") and "(p 0.25)" in drawn[2]


def test_other_sizes_than_those_of_a_finished_stage_are_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ["--arms", "orqa", "--stages", "recall"]
    bench.main([*command, *arms])
    (tmp_path / "sizes.json").write_text('{"cloze_lr": 1.0}')
    with pytest.raises(SystemExit):
        bench.main([*command, *arms, "--sizes", str(tmp_path / "sizes.json")])
    assert "holds a run with other settings (lr 0.0005, not 1.0)" in capsys.readouterr().err
    (tmp_path / "sizes.json").write_text('{"epochs": 1}')
    with pytest.raises(SystemExit):
        bench.main([*command, *arms, "--sizes", str(tmp_path / "sizes.json")])
    assert "fields of eval.ablation_sizes.Sizes" in capsys.readouterr().err
    encoder = KnowledgeAugmentedEncoder.from_encoder(tmp_path / "encoder")
    torch.nn.init.ones_(encoder.model.get_input_embeddings().weight)
    encoder.save(tmp_path / "encoder")  # as if made again: figures of the one before are not its own
    with pytest.raises(SystemExit):
        bench.main([*command, *arms])
    assert "holds a run with other settings (what is in encoder)" in capsys.readouterr().err


@pytest.mark.slow
def test_all_arms_go_all_the_way(command: list[str], tmp_path: Path) -> None:
    bench.main([*command, "--plot", str(tmp_path / "ablation.png")])
    rows = json.loads((tmp_path / "ablation.json").read_text())["rows"]
    assert [row["arm"] for row in rows] == USUAL
    for row in rows:
        assert ("em" in row) == (row["arm"] in ("orqa", "dpr", "full", "stale"))
        if "em" in row:
            assert {key: each["questions"] for key, each in row["em"].items()} == {"nq": 8, "squad": 6}
    assert (tmp_path / "ablation.png").stat().st_size > 10_000


def test_the_table_says_what_was_not_measured_and_what_a_row_needs_to_be_known_of() -> None:
    interval = {"value": 0.125, "low": 0.1, "high": 0.15}
    recall = {"5": interval, "20": {"value": 0.5, "low": 0.4, "high": 0.6}}
    row = {"arm": "dpr", "title": "DPR", "note": "supervised", "recall": recall, "trained_s": {"dpr": 5400}}
    less = {"answer_recall": {"20": {"difference": {"value": -0.031}, "p": 0.004}}}
    tied = {"em": {"difference": {"value": -0.02}, "p": 0.5}}
    figures = {
        "corpus": "60 blocks",
        "corpus made of": {"answered": {"nq dev, all": {"questions": 8757, "answered": 5254, "share": 0.6}}},
        "rows": [
            {**row, "less full": {"recall": less, "nq": tied}, "em": {"nq": {"em": interval}}, "tuned_s": 1800},
            {"arm": "bm25", "title": "BM25", "note": ""},
        ],
    }
    assert table(figures).splitlines() == [
        "|  | recall @5 | @20 | @20 less full | EM, NQ test-a | less full | EM, SQuAD dev-a | less full | trained |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| DPR ¹ | 12.5 (10.0 to 15.0) | 50.0 (40.0 to 60.0) | -3.1 (p 0.004) | 12.5 (10.0 to 15.0) | -2.0 (p 0.5) | – "
        "| – | 1.5 h + 0.5 h |",
        "| BM25 | – | – | – | – | – | – | – | – |",
        "",
        "Corpus: 60 blocks. Percent of all questions that were asked, 95 % intervals in brackets: over questions, not "
        "over trainings, of which there is one a row. p of paired tests, not corrected for their number. Recall: of "
        "questions that no training question is like. The systems were fine-tuned on NQ alone: SQuAD's questions are "
        "new to them. Questions whose answer stands anywhere in the corpus, in percent: nq dev, all 60.0 of 8,757.",
        "",
        "¹ supervised",
    ]
