"""The table of generators: its questions and its corpus by hand, and a run of its arms in a world of made-up words."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_folder import ask, lines, put, write

from eval import generate, generate_corpus
from eval.ablation_corpus import INDEX
from eval.bench import arms as common
from eval.bench import generate as bench
from eval.generate import ARMS, Places
from eval.generate_corpus import RECIPE, TREC_TRAIN, WEBQ_TRAIN
from eval.generate_questions import SQUAD_TRAIN, TREC_TEST, WEBQ_TEST, Wanted, check, taught
from eval.generate_sizes import SMOKE, Sizes
from eval.suite import Split
from pipelines import closed_book, fid
from pipelines.closed_book import ClosedBookConfig
from pipelines.common.data_sets import SHARE, held_out
from pipelines.fid import FidConfig
from pipelines.rag import train as rag
from pipelines.rag import warm_generator
from pipelines.rag.train import RagConfig
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.span_reader import SpanReader
from ragqa.progress import SILENT
from ragqa.questions import read_questions
from ragqa.retrieval.registry import open_retriever
from ragqa.runtime.encoder import load_encoder
from ragqa.types import Question

KEPT, LEFT = (
    next(f"w200 w{n}" for n in range(201, 300) if held_out(f"w200 w{n}", SHARE) is held) for held in (False, True)
)
"""Titles of SQuAD's articles: one to train on, one held out."""


def article(title: str, asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one paragraph, which holds w300 and on."""
    answers = [[{"text": text, "answer_start": 0} for text in each["answers"]] for each in asked]
    rows = [{"id": f"{title} {n}", "question": each["question"]} for n, each in enumerate(asked)]
    context = f"{title} has " + " ".join(f"w{n}" for n in range(300, 330))
    questions = [row | {"answers": each} for row, each in zip(rows, answers, strict=True)]
    return {"title": title.replace(" ", "_"), "paragraphs": [{"context": context, "qas": questions}]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write(tmp_path_factory.mktemp("data"))
    put(root / WEBQ_TEST, lines([ask(f"w64 w{100 + n}", f"w{600 + n}") for n in range(5)]))
    put(root / WEBQ_TRAIN, lines([ask("who is w60 w100", "w600")]))
    put(root / TREC_TEST, lines([ask("w65 w70 w71 w72", "w60[01]")]))
    put(root / TREC_TRAIN, lines([ask("what is w60 w101", "w601")]))
    asked = [
        ask("The W64, w100?", "w300"),  # WebQuestions asks it
        ask("w65 w70 w71 w73", "w301"),  # 3 of 5 words are those of CuratedTREC's
        ask("w66 w80", " ".join(f"w{n}" for n in range(300, 311))),  # 11 words
        *[ask(f"w66 w{81 + n}", f"w{310 + n}") for n in range(10)],
        ask("w66 w81?", "w311"),  # twice
    ]
    dev = [ask("w64 w100", "w300"), *[ask(f"w67 w{81 + n}", f"w{310 + n}") for n in range(8)]]
    put(root / SQUAD_TRAIN, json.dumps({"data": [article(KEPT, asked), article(LEFT, dev)]}))
    return root


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "c"
    generate_corpus.make(data, out, 70, Wanted(dev=8))
    return out


def texts(file: Path) -> list[str]:
    return [question.text for question in read_questions(file)]


def test_training_questions_are_apart_from_all_that_is_asked(made: Path) -> None:
    train, dev = (texts(made / "questions" / f"{name}.jsonl") for name in ("train", "dev"))
    counts = json.loads((made / "report.json").read_text())["questions"]
    # SQuAD: 14, of which one is asked, one is like one that is, one has a long answer, one is there twice
    assert [text for text in train if text.startswith("w66")] == [f"w66 w{81 + n}" for n in range(10)]
    assert counts["train"]["SQuAD"] == 10 and counts["train"]["questions"] == len(train)
    assert not {"The W64, w100?", "w65 w70 w71 w73"} & set(train)
    # NQ: 33 and 11 of QED, of which one is there twice; "The w60, w103 w1?" of NQ dev is left out where dev drew it
    drawn = "w60 w103 w1" in dev
    assert counts["train"]["NQ"] == 43 - drawn and train.count("w60 w140") == train.count("w61 w140") == 1
    left = counts["train"]["left out"]
    assert (left["long"], left["alike"]) == (1, 1)
    assert (left["twice"], left["asked"]) == (1 + 1, 1 + drawn)
    assert counts["dev"] == {
        "questions": 16,
        "NQ": 8,
        "SQuAD": 8,
        "left out": {"long": 0, "twice": 0, "asked": 1, "alike": 0},
    }
    assert "w64 w100" not in dev and sum(text.startswith("w67") for text in dev) == 8
    assert counts["tests"][WEBQ_TEST] == 5 and counts["tests"][TREC_TEST] == 1


def test_why_a_question_is_left_out_is_counted() -> None:
    rows = [
        Question("Who wrote it?", ("x",)),
        Question("who wrote it", ("y",)),
        Question("who built tower bridge", ("a b c d e f g h i j k", "short")),
        Question("who built", (" ".join("abcdefghijk"),)),
        Question("When was tower bridge built", ("z",)),
    ]
    kept, left = taught(rows, [Question("the tower bridge: who built it", ())])
    assert [question.text for question in kept] == ["Who wrote it?"]
    assert left == {"long": 1, "twice": 1, "asked": 0, "alike": 2}
    kept, left = taught(rows[2:3], [Question("who built the tower bridge", ())])
    assert not kept and left == {"long": 0, "twice": 0, "asked": 1, "alike": 0}
    assert [question.answers for question in taught(rows[2:3], [])[0]] == [("short",)]


@pytest.mark.parametrize(
    ("name", "added", "said"),
    [
        ("train", "The w64 w101?", "which is held out in"),
        ("train", "w65 w70 w71 w74", "asks 'w65 w70 w71 w74', which is like 'w65 w70 w71 w72', which is held out"),
        ("dev", "w65 w70 w71 w74", "dev.jsonl asks 'w65 w70 w71 w74', which is like"),
        ("train", "w67 w81", "which is held out in"),  # of dev
    ],
)
def test_an_overlap_is_refused_in_a_line(
    made: Path, data: Path, tmp_path: Path, name: str, added: str, said: str
) -> None:
    for file in ("train", "dev"):
        (tmp_path / f"{file}.jsonl").write_text((made / "questions" / f"{file}.jsonl").read_text())
    check(tmp_path, data)
    file = tmp_path / f"{name}.jsonl"
    file.write_text(file.read_text() + lines([ask(added, "w600")]))
    with pytest.raises(BadInput) as refused:
        check(tmp_path, data)
    (line,) = str(refused.value).splitlines()
    assert said in line


def test_too_few_questions_for_dev_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="9 questions are wanted for dev where 8 can be had"):
        generate_corpus.make(data, tmp_path / "c", 70, Wanted(dev=9))


def test_one_corpus_holds_what_all_four_are_answered_from(made: Path, data: Path) -> None:
    report = json.loads((made / "report.json").read_text())
    assert report["sources"]["squad-train"] == {"documents": 2, "blocks": 2}
    assert report["sources"]["squad"] == {"documents": 6, "blocks": 6}
    assert report["blocks"] <= 70
    passages = [each for some in PassageStore.open(made / INDEX / "passages").iter_batches() for each in some]
    assert {KEPT, LEFT} <= {passage.title for passage in passages}
    assert set(report["answered"]) == {"train.jsonl", "dev.jsonl", "nq/test-a.jsonl", WEBQ_TEST, *RECIPE.squad[:1]}
    assert generate_corpus.make(data, made, 70, Wanted(dev=8)) == report
    with pytest.raises(BadInput, match="holds a corpus of other settings"):
        generate_corpus.make(data, made, 70, Wanted(dev=7))


# The arms


def places(root: Path) -> Places:
    return Places(work=root, corpus=Path("c"), encoder=Path("e"), data=Path("d"))


def test_the_closed_book_differs_from_each_generator_in_its_passages_and_as_many_steps_as_the_start_took() -> None:
    named = {name: generate.training(places(Path("w")), Sizes(), name) for name in ARMS}
    closed = asdict(named.pop("closed-book"))  # type: ignore[arg-type]
    assert named.pop("span") is None
    begun = asdict(generate.start(places(Path("w")), Sizes()))
    assert closed["generator"] == begun["out"] / "generator" == Path("w/start/generator")
    assert closed["steps"] == begun["steps"] + asdict(named["fid"])["steps"]  # type: ignore[arg-type]
    rhythm = {"steps", "warmup", "eval_every", "save_every"}  # of as many steps more
    for name, config in named.items():
        own = asdict(config)  # type: ignore[arg-type]
        both = closed.keys() & own.keys() - {"out"}
        same = {"batch", "questions", "dev", "lr", "clip", "weight_decay", "dropout", "seed", "generator"}
        assert same <= both and all(own[key] == closed[key] for key in both - rhythm), name
        assert generate.words(Sizes(), name) == generate.words(Sizes(), "closed-book")
    token, sequence = (asdict(named[f"rag-{name}"]) for name in ("token", "sequence"))  # type: ignore[arg-type]
    assert {key for key in token if token[key] != sequence[key]} == {"out", "marginal"}


def test_the_retriever_scores_by_cosines(small: Path, tmp_path: Path) -> None:
    """Inner products are ``scale`` times the cosines of the mean hidden states, these less their own mean."""
    made = generate.begin_retriever(replace(places(tmp_path), encoder=small), Sizes(scale=20.0))
    towers, plain = DualEncoder.load(made), DualEncoder.load(small)
    assert towers.shared
    ids, mask = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        hidden_NLH = plain.questions.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        mean_NH = torch.stack([hidden_NLH[0].mean(0), hidden_NLH[1, :3].mean(0)])
        unit_NH = torch.nn.functional.normalize(mean_NH - mean_NH.mean(-1, keepdim=True), dim=-1)
        found_ND = towers.questions(ids, mask)
    torch.testing.assert_close(found_ND @ found_ND.T, 20 * unit_NH @ unit_NH.T, rtol=1e-3, atol=1e-3)


# The bench


def never(*arguments: Any, **options: Any) -> None:
    raise AssertionError("this stage is finished")


@pytest.fixture(scope="module")
def command(made: Path, data: Path, small: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of a bench at the size of a smoke test."""
    root = tmp_path_factory.mktemp("bench")
    SpanReader.from_encoder(small).save(root / "reader")
    (root / "reader" / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    where = {"--work": root / "work", "--encoder": small, "--corpus": made, "--data": data, "--out": root / "out"}
    where["--reader"] = root / "reader"
    return [*(str(part) for pair in where.items() for part in pair), "--smoke"]


@pytest.fixture(scope="module")
def begun(command: list[str]) -> list[str]:
    """The same, with all made that the arms share."""
    bench.main([*command, "--stages", "start"])
    return command


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites, as small as the data."""
    counts = {"nq": 10, "webq": 5, "curatedtrec": 1, "squad": 6}
    cut = [
        replace(each, splits={each.default_split: Split(file=each.splits[each.default_split].file, questions=count)})
        for each, count in zip(bench.SUITES, counts.values(), strict=True)
    ]
    assert [each.key for each in cut] == list(counts)
    monkeypatch.setattr(bench, "SUITES", tuple(cut))


@pytest.mark.slow
def test_an_arm_and_its_closed_book_go_all_the_way_and_go_on(
    begun: list[str], suites: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (warm_generator, rag):
        monkeypatch.setattr(each, "train_step", never)
    arms = ["--arms", "closed-book", "fid"]
    bench.main([*begun, *arms, "--stages", "train"])
    for each in (fid, closed_book):
        monkeypatch.setattr(each, "main", never)
    bench.main([*begun, *arms, "--stages", "em"])
    monkeypatch.setattr(common, "run", never)
    for arm in arms[1:]:
        bench.main([*begun, "--arms", arm])  # each is added to what stands there
    out = Path(begun[begun.index("--out") + 1])
    drawn = (out / "table.md").read_text()
    head, _, *rows = drawn.split("\n\n")[0].splitlines()
    assert "reader" in head and len(rows) == 8
    assert ["| fid, begun by 3 steps, 3 (closed book 6) of its own |" in row for row in rows] == [False, True] * 4
    assert all("intervals" in row for row in rows[1::2]) and not any("intervals" in row for row in rows[::2])
    assert "the training questions of WebQuestions" in drawn and "none of which equals" in drawn
    figures = json.loads((out / "generate.json").read_text())
    assert figures["sizes"] == asdict(SMOKE)
    assert {key: each["questions"] for key, each in figures["rows"][1]["em"].items()} == {
        "nq": 4,
        "webq": 4,
        "curatedtrec": 1,
        "squad": 4,
    }
    assert {file.name for file in out.glob("*.tsv")} >= {"squad_fid.tsv", "curatedtrec_closed-book.tsv"}


def test_a_work_folder_is_of_one_retriever_and_one_reader(tmp_path: Path) -> None:
    """What is made later, as the retriever may be, is noted then."""
    made = Places(work=tmp_path / "w", corpus=tmp_path, encoder=tmp_path, data=tmp_path, begun=tmp_path / "reader")
    put(tmp_path / "reader" / "weights", "a")
    told = bench.Bench(made, SMOKE, "c", SILENT)
    told.settle()
    put(made.retriever / "weights", "b")
    told.settle()
    assert generate.made_of(made).keys() == {"reader", "retriever"}
    put(tmp_path / "other" / "weights", "c")
    for changed, name in (({"given": tmp_path / "other"}, "retriever"), ({"begun": tmp_path / "other"}, "reader")):
        with pytest.raises(BadInput, match=f"was made of another {name}: choose another folder"):
            replace(told, places=replace(made, **changed)).settle()


@pytest.mark.slow
def test_the_index_of_all_arms_is_searched_as_the_retriever_would(begun: list[str]) -> None:
    work = Path(begun[begun.index("--work") + 1])
    store = PassageStore.open(work / "index" / "passages")
    passages = [each for some in store.iter_batches() for each in some]
    retriever = load_encoder(work / "retriever")
    scores = retriever.encode([each.titled for each in passages]) @ retriever.encode_questions(["w63 w172"])[0]
    (hits,) = open_retriever(work / "index", "dense").search(["w63 w172"], len(passages))
    assert len(hits) == len(passages)
    found = [hit.score for hit in hits]
    assert np.corrcoef(found, scores[[hit.passage.id for hit in hits]])[0, 1] > 0.999  # 8 bits ask


def test_what_would_fail_after_hours_fails_at_once(
    command: list[str], made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value, said in (
        ("--corpus", str(tmp_path), "make one with python -m eval.generate_corpus"),
        ("--encoder", str(tmp_path), "has no config.json"),
        ("--reader", str(tmp_path), "--reader is what pipelines.span_reader.train writes"),
        ("--retriever", str(tmp_path / "none"), "--retriever must be the folder of a dual encoder"),
        ("--stages", "train,test", "stages test: choose of start, train, em"),
    ):
        with pytest.raises(SystemExit):
            bench.main([*command, option, value])
        said_now = capsys.readouterr().err
        assert said in said_now and said_now.count("\n") == 1
    (tmp_path / "sizes.json").write_text('{"epochs": 1}')
    with pytest.raises(SystemExit):
        bench.main([*command, "--sizes", str(tmp_path / "sizes.json")])
    assert "fields of eval.generate_sizes.Sizes" in capsys.readouterr().err


@pytest.mark.slow
def test_all_arms_go_all_the_way(begun: list[str], suites: None, monkeypatch: pytest.MonkeyPatch) -> None:
    step = rag.train_step

    def killed(run: Any, *others: Any, **options: Any) -> Any:
        if run.step == 2:
            raise KeyboardInterrupt
        return step(run, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(rag, "train_step", killed)
        with pytest.raises(SystemExit):
            bench.main(begun)
    bench.main(begun)
    out = Path(begun[begun.index("--out") + 1])
    assert len(list(out.glob("*_*.json"))) == 4 * len(ARMS)
    rows = (out / "table.md").read_text().split("\n\n")[0].splitlines()[2:]
    assert len(rows) == 4 * len(ARMS)
    assert sum("intervals" in row for row in rows) == 4 * 3


def test_settings_are_of_the_recipes_that_they_name() -> None:
    kinds = {"rag-token": RagConfig, "rag-sequence": RagConfig, "fid": FidConfig, "closed-book": ClosedBookConfig}
    for name, kind in kinds.items():
        assert type(generate.training(places(Path("w")), Sizes(), name)) is kind
