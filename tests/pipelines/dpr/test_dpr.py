"""Training of DPR: rounds of negatives, killed runs, and settings that are refused."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conftest import ROOT, run, wait_for

from pipelines.common import retrieval_eval
from pipelines.common.examples.retrieval_examples import RetrievalExample
from pipelines.dpr import loop as dpr
from pipelines.dpr.config import DprConfig
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, Mismatch, RagqaError
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.metrics import has_answer
from ragqa.models.dual_encoder import DualEncoder
from ragqa.pipeline import Pipeline
from ragqa.question_files import read_questions
from ragqa.runtime.encoder import load_encoder
from ragqa.settings.command_line import parse_config
from ragqa.training.log import read_rows
from tests.helpers.models import one_thread
from tests.helpers.text_index import index_texts, write_rows


def read_mined_rows(file: Path) -> list[dict[str, Any]]:
    """Return the mined rows, without the last line."""
    return [json.loads(line) for line in file.read_text().splitlines()][:-1]


class World(NamedTuple):
    """A corpus of facts about entities; a retriever that has learned two facts of an entity can find the third."""

    corpus: Path
    train: Path
    dev: Path


ENTITIES = 60


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Write three facts per entity; question and passage name a relation by different words."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    facts = [(entity, relation) for entity in range(ENTITIES) for relation in range(3)]
    objects = [f"w{500 + n * 7 % ENTITIES}" for n in range(len(facts))]
    texts = [
        f"w{entity} w{400 + relation} {thing} w{rng.integers(300, 400)}"
        for (entity, relation), thing in zip(facts, objects, strict=True)
    ]
    rows = [
        {"question": f"w{entity} w{450 + relation}", "answers": [thing]}
        for (entity, relation), thing in zip(facts, objects, strict=True)
    ]
    train = write_rows(folder / "train.jsonl", [row for n, row in enumerate(rows) if n % 7 != 3])
    dev = write_rows(folder / "dev.jsonl", [row for n, row in enumerate(rows) if n % 7 == 3])
    return World(index_texts(folder, texts), train, dev)


def config(world: World, small: Path, out: Path, **options: Any) -> DprConfig:
    settings: dict[str, Any] = {
        "questions": (world.train,),
        "steps": 250,
        "batch": 32,
        "lr": 3e-3,
        "dropout": 0.0,
        "max_block": 32,
    }
    settings |= {"depth": 20, "pool": 5, "eval_every": 1000, "no_export": True}
    return DprConfig(corpus=world.corpus, encoder=small, out=out, **{**settings, **options})


class TrainingRun(NamedTuple):
    """The settings of a run, and the lines that it reported."""

    config: DprConfig
    lines: list[str]


@pytest.fixture(scope="module")
def two_towers(world: World, small: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """Train two towers for one round."""
    lines: list[str] = []
    out = tmp_path_factory.mktemp("dpr") / "run"
    chosen = config(world, small, out, dev=world.dev, no_export=False)
    assert dpr.main(chosen, notify=lines.append) == out / "model"
    return TrainingRun(chosen, lines)


@pytest.fixture(scope="module")
def two_rounds(world: World, small: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingRun, str]:
    """Train one tower for one round, then continue with a second; also return the log of the first round."""
    lines: list[str] = []
    out = tmp_path_factory.mktemp("rounds") / "run"
    once = config(world, small, out, steps=60, shared=True, dev=world.dev)
    dpr.main(once, notify=lines.append)
    log = (out / "round-1" / "metrics.jsonl").read_text()
    both = replace(once, rounds=2, no_export=False)
    dpr.main(both, notify=lines.append)
    return TrainingRun(both, lines), log


def test_the_retriever_finds_facts_whose_questions_are_held_out(two_towers: TrainingRun) -> None:
    """A random ranking would find one in sixty. Passages of held-out facts are not used as positives either."""
    rows = [row for row in read_rows(two_towers.config.out / "round-1") if "recall@1" in row]
    assert [row["step"] for row in rows] == [0, 250]
    assert rows[0]["recall@1"] <= 0.12 and rows[1]["recall@1"] >= 0.6 and rows[1]["recall@5"] >= 0.8
    losses = [row["nll"] for row in read_rows(two_towers.config.out / "round-1") if "nll" in row]
    assert len(losses) == 250 and np.mean(losses[-20:]) < 0.15 * np.mean(losses[:5])


@pytest.mark.thorough
@pytest.mark.parametrize("towers", [2, 1])
def test_the_reported_command_indexes_with_the_exported_encoder(
    request: pytest.FixtureRequest, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], towers: int
) -> None:
    """The last line of the run is run as a command. Its index has the recall that training measured."""
    training = request.getfixturevalue("two_towers") if towers == 2 else request.getfixturevalue("two_rounds")[0]
    line = training.lines[-1]
    command = re.fullmatch(r"index with it: ragqa (index .+ --out) NAME.index (--retriever dense --blocks .+)", line)
    assert command is not None, line
    index = tmp_path / "facts.index"
    assert run(*command[1].split(), str(index), *command[2].split(), capsys=capsys)[0] == 0
    assert (training.config.out / "export" / "questions").exists() == (towers == 2)
    rankings = Pipeline.load(index).retriever.search([q.text for q in read_questions(world.dev)], 5)
    right = [
        any(has_answer(hit.passage.text, question.answers) for hit in hits)
        for question, hits in zip(read_questions(world.dev), rankings, strict=True)
    ]
    measured = read_rows(training.config.out / f"round-{training.config.rounds}")[-1]["recall@5"]
    assert measured > 0.5 and np.mean(right) == pytest.approx(measured, abs=0.1)  # the export has 8 bits
    report = tmp_path / "dev.report"
    options = "--index", str(index), "--no-read", "--out", str(report)
    assert run("eval", str(world.dev), *options, capsys=capsys)[0] == 0
    figures = json.loads((report / "report.json").read_text())
    assert figures["answer_recall"]["5"]["value"] == pytest.approx(np.mean(right))
    options = ("--index", str(index), "-k", "5", "--min-confidence", "0", "--json")
    status, output, _ = run("ask", next(read_questions(world.dev)).text, *options, capsys=capsys)
    sources = json.loads(output)["sources"]
    assert status == 0 and {source["text"] for source in sources} <= {hit.passage.text for hit in rankings[0]}


@pytest.mark.parametrize(
    ("chosen", "options"),
    [({"blocks": "words"}, "--blocks words"), ({"block_size": 30}, "--blocks sentences --block-size 30")],
)
def test_the_reported_command_makes_passages_like_those_of_the_corpus(
    world: World, small: Path, tmp_path: Path, chosen: dict[str, Any], options: str
) -> None:
    corpus, lines = tmp_path / "c.index", list[str]()
    build_index([world.corpus.with_name("c.jsonl")], corpus, IndexConfig(retriever="bm25", **chosen))
    (tmp_path / "run" / "round-1" / "model").mkdir(parents=True)
    dpr.publish(replace(config(world, small, tmp_path / "run"), corpus=corpus), lines.append)
    assert f" --retriever dense {options} --encoder " in lines[-1]


def test_no_held_out_question_is_trained_on(two_towers: TrainingRun, world: World, tmp_path: Path, small: Path) -> None:
    file = write_rows(
        tmp_path / "both.jsonl", [json.loads(row) for file in world[1:] for row in file.read_text().splitlines()]
    )
    lines: list[str] = []
    both = config(world, small, tmp_path / "run", questions=(file,), dev=world.dev, steps=1, eval_every=9)
    dpr.main(both, notify=lines.append)
    held_out = sum(1 for _ in read_questions(world.dev))
    assert f"; dropped: {held_out} also in the held-out file" in lines[0]
    rows, expected = (
        [{**row, "id": None} for row in read_mined_rows(out / "pairs.jsonl")]
        for out in (both.out, two_towers.config.out)
    )
    assert rows == expected


def test_the_second_round_mines_its_own_negatives(two_rounds: tuple[TrainingRun, str], world: World) -> None:
    """The best passages without an answer are negatives, by the scores of the first round's retriever."""
    (chosen, lines), _ = two_rounds
    encoder = load_encoder(chosen.out / "round-1" / "model")
    texts = [p.text for p in PassageStore.open(world.corpus / "passages").read_rows(0, 3 * ENTITIES)]
    questions = list(read_questions(world.train))
    vectors = encoder.encode(texts).astype(np.float16).astype(np.float32)
    scores = encoder.encode_questions([q.text for q in questions]) @ vectors.T
    rows, bm25 = (
        read_mined_rows(chosen.out / "round-2" / "negatives.jsonl"),
        read_mined_rows(chosen.out / "pairs.jsonl"),
    )
    assert len(rows) == len(bm25) == len(questions)
    for question, score, row, first in zip(questions, scores, rows, bm25, strict=True):
        best = np.argsort(-score, kind="stable")[:20]
        right = {int(n) for n in best if has_answer(texts[n], question.answers)}
        assert row["known"] == sorted(right.union(first["known"]))
        assert row["negatives"] == [int(n) for n in best if n not in row["known"]][:5]
    assert sum(set(a["negatives"]) != set(b["negatives"]) for a, b in zip(rows, bm25, strict=True)) > len(rows) / 2
    assert [Path(line.partition(":")[0]).name for line in lines if "step" not in line] == [
        "pairs.jsonl",
        "index with it",
        "negatives.jsonl",
        "index with it",
    ]
    assert not (chosen.out / "round-2" / "vectors").exists()


def test_the_second_round_trains_on_its_own_negatives(
    two_rounds: tuple[TrainingRun, str], monkeypatch: pytest.MonkeyPatch, world: World, small: Path, tmp_path: Path
) -> None:
    (chosen, _), _ = two_rounds
    rounds: list[list[RetrievalExample]] = []
    monkeypatch.setattr(dpr, "train_round", lambda config, number, batches, *rest: rounds.append(batches.examples))
    dpr.main(chosen)
    negatives = [row["negatives"] for row in read_mined_rows(chosen.out / "round-2" / "negatives.jsonl")]
    assert [len(pair.negatives) for pair in rounds[0]] == [1] * len(negatives)
    assert [pair.negatives[1].tolist() for pair in rounds[1]] == negatives


def test_a_further_round_does_not_change_the_first(two_rounds: tuple[TrainingRun, str]) -> None:
    (chosen, _), log = two_rounds
    assert (chosen.out / "round-1" / "metrics.jsonl").read_text() == log
    last = load_encoder(chosen.out / "round-2" / "model").fingerprint
    assert load_encoder(chosen.out / "model").fingerprint == last
    assert load_encoder(chosen.out / "round-1" / "model").fingerprint != last
    with pytest.raises(BadInput, match=r"round-1 holds a run with other settings \(lr 0.003, not 0.1\)"):
        dpr.main(replace(chosen, lr=0.1))


@pytest.mark.parametrize("continue_weights", [False, True])
def test_a_round_begins_with_the_encoder_or_the_weights_of_the_round_before(
    two_rounds: tuple[TrainingRun, str], small: Path, continue_weights: bool
) -> None:
    (chosen, _), _ = two_rounds
    start = dpr.load_start(replace(chosen, continue_weights=continue_weights), 2).state_dict()
    first_round = dpr.load_start(
        replace(chosen, encoder=None, retriever=chosen.out / "round-1" / "model"), 1
    ).state_dict()
    encoder = dpr.load_start(chosen, 1).state_dict()
    expected, other = (first_round, encoder) if continue_weights else (encoder, first_round)
    assert all(torch.equal(start[name], expected[name]) for name in expected)
    assert not all(torch.equal(start[name], other[name]) for name in other)


@pytest.mark.thorough
def test_a_killed_run_takes_the_same_steps(world: World, small: Path, tmp_path: Path) -> None:
    """With dropout and chunks. The killed run evaluates at other steps, which changes no training step."""
    options = {"steps": 60, "dropout": 0.1, "chunk": 24, "save_every": 5, "sample": 10, "width": 16}
    with one_thread() as environment:
        unbroken = config(world, small, tmp_path / "unbroken", **options)
        dpr.main(unbroken)
        killed = config(world, small, tmp_path / "killed", dev=world.dev, eval_every=6, **options)
        (tmp_path / "config.json").write_text(json.dumps(asdict(killed), default=str))
        command = [sys.executable, "-m", "pipelines.dpr.train", "--config", str(tmp_path / "config.json")]
        with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE) as process:
            wait_for(lambda: len(read_losses(killed.out)) > 12 or process.poll() is not None, 300)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL and 12 < len(read_losses(killed.out)) < 60
        summary = json.loads((killed.out / "pairs.jsonl").read_text().splitlines()[-1])
        mined = (killed.out / "pairs.jsonl").stat().st_mtime_ns
        dpr.main(replace(killed, eval_every=20))
        assert (killed.out / "pairs.jsonl").stat().st_mtime_ns == mined and summary["counts"]["kept"] == 154
    assert read_losses(killed.out) == read_losses(unbroken.out)
    assert [row["step"] for row in read_rows(killed.out / "round-1") if "nll" in row] == list(range(60))


def test_each_round_saves_its_best_weights(
    world: World, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations of the second round do not change the choice of the first."""
    weights: list[dict[str, torch.Tensor]] = []
    # Recall of each round at steps 0, 2, 4 and 6. Of equal values the last counts.
    recalls = [0.1, 0.4, 0.4, 0.2, 0.3, 0.1, 0.2, 0.2]

    def record_weights(held_out: Any, tower: Any, *rest: Any) -> dict[str, float]:
        weights.append({name: value.clone() for name, value in tower.state_dict().items()})
        return {"recall@5": recalls[len(weights) - 1]}

    monkeypatch.setattr(retrieval_eval, "evaluate_retrieval", record_weights)
    options = {"steps": 6, "eval_every": 2, "rounds": 2, "batch": 8, "dev": world.dev, "continue_weights": True}
    chosen = config(world, small, tmp_path / "run", **options)
    dpr.main(chosen)
    for number in (1, 2):  # the second round starts from the best of the first and does not improve
        written = DualEncoder.load(dpr.get_round_folder(chosen, number) / "model").questions.state_dict()
        same = [n for n in range(8) if all(torch.equal(weights[n][name], written[name]) for name in written)]
        assert same == [2, 4]
    assert [row["best_step"] for row in read_rows(tmp_path / "run" / "round-1") if "recall@5" in row] == [0, 2, 4, 4]
    assert [row["best_step"] for row in read_rows(tmp_path / "run" / "round-2") if "recall@5" in row] == [0, 0, 0, 0]


def read_losses(out: Path) -> list[float]:
    return [row["nll"] for row in read_rows(out / "round-1") if "nll" in row]


def test_chunks_change_no_step(world: World, small: Path, tmp_path: Path) -> None:
    """Losses differ by rounding in bfloat16, which depends on padding; test_gradient_cache compares gradients."""
    rows = []
    for chunk in (1000, 7):
        chosen = config(world, small, tmp_path / str(chunk), steps=2, chunk=chunk)
        dpr.main(chosen)
        rows.append([(row["nll"], row["grad_norm"]) for row in read_rows(chosen.out / "round-1")])
    assert np.allclose(*rows, rtol=0.02)


def test_options_come_from_the_command_line_or_a_file(tmp_path: Path) -> None:
    options = ["--corpus", "c", "--out", "o", "--encoder", "e", "--questions", "a", "b", "--pooling", "mean"]
    chosen = parse_config(DprConfig, None, options)
    assert (chosen.questions, chosen.pooling, chosen.width) == ((Path("a"), Path("b")), "mean", None)
    file = write_rows(tmp_path / "o.json", [{"corpus": "c", "out": "o", "encoder": "e", "questions": ["a", "b"]}])
    assert parse_config(DprConfig, None, ["--config", str(file), "--pooling", "mean"]) == chosen
    file = write_rows(tmp_path / "p.json", [{"corpus": "c", "out": "o", "questions": ["a"], "pooling": "max"}])
    with pytest.raises(BadInput, match='pooling = "max" is not of the type of the option'):
        parse_config(DprConfig, None, ["--config", str(file)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"questions": (Path("none.jsonl"),)}, "none.jsonl: no such file of questions"),
        ({"dev": Path("none.jsonl")}, "none.jsonl: no such file of questions"),
        ({"encoder": Path("none")}, "none: no such directory to begin from"),
        ({"encoder": None}, "give either --encoder or --retriever"),
        ({"retriever": Path("none")}, "give either --encoder or --retriever"),
        ({"encoder": None, "retriever": Path("none")}, "none: no such directory to begin from"),
        ({"corpus": Path("none")}, "none does not exist"),
        ({"questions": ()}, "--questions or --patterns is needed"),
        ({"batch": 0, "dropout": 1.0, "steps": -3}, "dropout = 1.0, steps = -3, batch = 0: out of range"),
        ({"width": 10**11}, "width = 100000000000: out of range (width: above 0 and at most 65,536)"),
        ({"batch": 155}, "a batch holds 155 questions, and 154 can be trained on: lower --batch"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_bad_input_is_one_clear_line(
    world: World, small: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    corpus = options.pop("corpus", world.corpus)
    encoder = options.pop("encoder", small)
    with pytest.raises(RagqaError) as caught:
        dpr.main(replace(config(world, small, tmp_path / "run"), corpus=corpus, encoder=encoder, **options))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert (tmp_path / "run").exists() == ("batch holds" in message)


def test_questions_without_answers_in_the_corpus_are_refused(world: World, small: Path, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "q.jsonl", [{"question": "w1 w450", "answers": ["w9999"]}] * 3)
    with pytest.raises(BadInput) as caught:
        dpr.main(config(world, small, tmp_path / "run", questions=(file,)))
    assert str(caught.value) == (
        f"no question of {file} can be trained on: 0 of 3 questions; "
        "dropped: 3 without a passage that contains an answer"
    )
    assert [path.name for path in (tmp_path / "run").iterdir()] == []


def test_a_corpus_without_terms_is_refused(small: Path, world: World, tmp_path: Path) -> None:
    index = index_texts(tmp_path, ["w1 w2", "w3"], "dense", str(small))
    with pytest.raises(Mismatch, match="cannot do bm25: index it again") as caught:
        dpr.main(replace(config(world, small, tmp_path / "run"), corpus=index))
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()
