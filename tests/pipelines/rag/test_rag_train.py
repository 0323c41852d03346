"""RAG from questions and answers: the loss of a step, the towers that learn, and killed runs."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import interrupt, untimed
from torch import Tensor, nn

from pipelines.common import assemble, generator_training
from pipelines.common.questions import read_answerable
from pipelines.common.training_index import NOT_FOUND, FrozenIndex
from pipelines.orqa import inverse_cloze_loop
from pipelines.rag import loop as rag
from pipelines.rag import step as rag_step
from pipelines.rag.config import RagConfig
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.generators import load_generator, make_generator, save_generator
from ragqa.models.generation.template import RAG
from ragqa.pipeline import Pipeline
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from ragqa.types import Passage, Question
from tests.helpers import closed_world


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> closed_world.WorldFolders:
    return closed_world.write_world(
        closed_world.make_world(30, 5, 0, words=2), tmp_path_factory.mktemp("world"), width=32
    )


@pytest.fixture(scope="module")
def start(folders: closed_world.WorldFolders) -> Path:
    return closed_world.init_encoder(folders, folders.root / "start", 0)


@pytest.fixture(scope="module")
def retriever(folders: closed_world.WorldFolders, start: Path) -> Path:
    cloze = closed_world.inverse_cloze_config(folders, start, folders.root / "cloze", seed=0, steps=3)
    return inverse_cloze_loop.main(replace_settings(cloze, batch=16))


@pytest.fixture
def config(folders: closed_world.WorldFolders, start: Path, retriever: Path, tmp_path: Path) -> RagConfig:
    generator = closed_world.init_generator(start, folders.root / "generator", 0)
    settings = closed_world.rag_config(
        folders, folders.train_questions, retriever, generator, tmp_path / "run", seed=0, steps=6
    )
    few = {"frozen": 2, "refresh_every": 2, "save_every": 3, "eval_every": 3, "warmup": 1}
    return replace_settings(settings, batch=4, k=3, smoothing=0.1, dropout=0.1, **few)


def freeze_passages(config: RagConfig) -> RagConfig:
    """Return the same settings with a fixed passage tower."""
    return replace_settings(config, learn_passages=False)


@pytest.mark.parametrize("marginal", ["token", "sequence"])
def test_the_loss_of_a_step_agrees_with_the_equations(
    config: RagConfig, marginal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference runs transformers on each pair, then multiplies and adds probabilities."""
    config = replace_settings(freeze_passages(config), marginal=marginal, dropout=0.0, smoothing=0.0)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    model, retriever = rag.load_models(config)
    library = FrozenIndex.open(config.corpus, config.retriever, config, config.index)
    batch_questions, answers = generator_training.draw_questions(
        read_answerable(config.questions), batch=config.batch, seed=config.seed, step=0
    )
    with torch.no_grad():
        found = rag_step.score_answers(model, library, [question.text for question in batch_questions], answers, config)
        batch_loss = rag_step.compute_loss(model, library, batch_questions, answers, config)
        expected, alone = [], []
        seq2seq = model.generator.seq2seq
        for question, answer, rows in zip(batch_questions, answers, found.rows_BK, strict=True):
            query = library.encode(retriever.questions, [question.text], "cpu")[0].numpy()
            vectors = np.asarray(library.vectors[np.arange(len(library.store))], np.float32)
            best = np.argsort(-(vectors @ query))[:3]
            assert rows.tolist() == best.tolist()
            prior = torch.from_numpy(vectors[best] @ query).softmax(0)
            labels = [*seq2seq.tokens.encode_bare(answer), seq2seq.tokens.end]
            assert len(labels) == 3  # two words and the end

            def score_passage(passage: Passage | None, question: Question = question, labels: Any = labels) -> Tensor:
                ids = torch.tensor(seq2seq.tokens.encode([RAG.fill(question.text, passage)]))
                before = torch.tensor([[seq2seq.conventions.start, *labels[:-1]]])
                logits = seq2seq.model(input_ids=ids, decoder_input_ids=before).logits[0]
                return logits.softmax(-1)[torch.arange(3), torch.tensor(labels)]

            each = torch.stack([score_passage(passage) for passage in library.passages(rows)])
            mixed = (prior[:, None] * each).sum(0).prod() if marginal == "token" else (prior * each.prod(1)).sum()
            expected.append(-mixed.log().item())
            alone.append(-score_passage(None).prod().log().item())
    assert found.nll_B.tolist() == pytest.approx(expected, rel=1e-4)
    assert batch_loss.loss.item() == batch_loss.figures["loss"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert batch_loss.figures["nll"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert batch_loss.figures["nll_alone"] == pytest.approx(np.mean(alone), rel=1e-4)


def test_smoothing_changes_the_loss_and_not_the_reported_nll(config: RagConfig) -> None:
    config = replace_settings(freeze_passages(config), dropout=0.0)
    model, _ = rag.load_models(config)
    library = FrozenIndex.open(config.corpus, config.retriever, config, config.index)
    batch = generator_training.draw_questions(
        read_answerable(config.questions), batch=config.batch, seed=config.seed, step=0
    )
    with torch.no_grad():
        rows = [
            rag_step.compute_loss(model, library, *batch, replace_settings(config, smoothing=s)).figures
            for s in (0.0, 0.1)
        ]
    assert rows[0]["loss"] == pytest.approx(rows[0]["nll"]) and abs(rows[1]["loss"] - rows[1]["nll"]) > 0.01
    assert rows[0]["nll"] == rows[1]["nll"]


def test_drawn_answers_depend_only_on_seed_and_step(config: RagConfig) -> None:
    questions = [Question(f"q{number}", tuple(f"a{number}-{each}" for each in range(3))) for number in range(8)]
    steps = [
        generator_training.draw_questions(questions, batch=config.batch, seed=config.seed, step=step)
        for step in range(60)
    ]
    assert steps == [
        generator_training.draw_questions(questions, batch=config.batch, seed=config.seed, step=step)
        for step in range(60)
    ]
    for batch_questions, answers in steps:
        assert all(answer in question.answers for question, answer in zip(batch_questions, answers, strict=True))
    score_passage = [answer for _, answers in steps for answer in answers]
    assert len(set(score_passage)) == 24  # all three answers of all eight questions
    assert steps != [
        generator_training.draw_questions(questions, batch=config.batch, seed=1, step=step) for step in range(60)
    ]


def test_missing_passages_have_no_weight() -> None:
    rows = np.array([[3, 1, NOT_FOUND], [NOT_FOUND, NOT_FOUND, NOT_FOUND]])
    weights = generator_training.mask_missing(torch.zeros(2, 3), rows).softmax(-1)
    assert weights.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]  # without any passage, an empty one is read


def has_moved(before: nn.Module, after: nn.Module) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))


def test_the_passage_tower_is_fixed_by_default(config: RagConfig) -> None:
    before = DualEncoder.load(config.retriever)
    assert before.is_shared
    rag.main(freeze_passages(config))
    after = DualEncoder.load(config.out / "model")
    assert not has_moved(before.passages, after.passages) and has_moved(before.questions, after.questions)
    start, result = load_generator(config.writing.generator, "rag-token"), load_generator(config.out / "generator")
    assert has_moved(start, result) and (result.kind, result.passages, result.max_input) == ("rag-token", 3, 64)
    rows = [row for row in read_rows(config.out) if "nll" in row]
    assert [row["staleness"] for row in rows] == [0] * 6


def test_the_index_follows_a_passage_tower_that_learns(config: RagConfig) -> None:
    lines: list[str] = []
    rag.main(config, notify=lines.append)
    assert has_moved(DualEncoder.load(config.retriever).passages, DualEncoder.load(config.out / "model").passages)
    rows = read_rows(config.out)
    steps = [row for row in rows if "nll" in row]
    names = {"nll", "loss", "nll_alone", "utility", "utility_top", "entropy", "distinct", "tokens", "utilisation"}
    assert all(names <= row.keys() and all(math.isfinite(row[name]) for name in names) for row in steps)
    assert [row["staleness"] for row in steps] == [0, 0, 0, 1, 0, 1]  # the retriever learns from the third step on
    swaps = [(row["step"], row["swap_version"]) for row in rows if "swap_version" in row]
    assert swaps == [(0, 0), (4, 2), (6, 4)]
    assert [row["step"] for row in rows if "em" in row] == [0, 3, 6]
    assert lines[-1].startswith("the run keeps the weights of step 6")


def test_a_frozen_retriever_keeps_its_weights(config: RagConfig) -> None:
    rag.main(replace_settings(config, frozen=6, steps=3))
    assert not has_moved(DualEncoder.load(config.retriever), DualEncoder.load(config.out / "model"))


@pytest.mark.parametrize("learn_passages", [True, False])
def test_a_killed_run_takes_the_same_steps(config: RagConfig, learn_passages: bool) -> None:
    """With dropout, and killed twice: before and after the first checkpoint."""
    config = replace_settings(config, frozen=1, learn_passages=learn_passages)
    whole = rag.main(config)
    broken = replace_settings(config, out=config.out.with_name("broken"))
    interrupt(rag.main, broken, 2, 5)
    rag.main(broken)
    one, other = (
        [untimed(row) for row in read_rows(out) if "swap_version" not in row] for out in (config.out, broken.out)
    )
    assert one == other
    for part in ("model", "generator"):
        for file in sorted((whole.parent / part).rglob("*.safetensors")):
            assert file.read_bytes() == (broken.out / file.relative_to(whole.parent)).read_bytes()


def test_bad_input_is_refused_before_work_begins(
    config: RagConfig, tmp_path: Path, folders: closed_world.WorldFolders
) -> None:
    with pytest.raises(BadInput, match="has only 90 passages, but 100 are to be read: lower --k"):
        rag.main(replace_settings(config, k=100))
    with pytest.raises(BadInput, match=r"k = 0, marginal = both, smoothing = 1\.0: out of range"):
        replace_settings(config, k=0, smoothing=1.0, marginal="both")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no questions with answers"):
        (tmp_path / "none.jsonl").write_text('{"question": "why?", "answers": []}\n')
        rag.main(replace_settings(config, questions=tmp_path / "none.jsonl"))
    assert not config.out.exists()
    with pytest.raises(BadInput, match=r"is not the directory of a run, because it holds none\.jsonl"):
        rag.main(replace_settings(config, out=tmp_path))
    assert {file.name for file in tmp_path.iterdir()} <= {"none.jsonl", ".lock"}  # no passage was embedded


def test_training_can_begin_from_a_generator_of_another_kind(config: RagConfig, tmp_path: Path) -> None:
    closed = make_generator(load_generator(config.writing.generator, "rag-token").seq2seq, "closed-book")
    save_generator(closed, tmp_path / "closed")
    model, _ = rag.load_models(replace_settings(config, generator=tmp_path / "closed"))
    assert (model.generator.kind, model.generator.passages, model.generator.max_input) == ("rag-token", 3, 64)


@pytest.mark.thorough
def test_a_trained_generator_answers_from_a_pipeline(config: RagConfig, folders: closed_world.WorldFolders) -> None:
    """The pipeline has the exact match of an evaluation in training."""
    config = replace_settings(config, learn_passages=False, steps=3, dev=folders.test_questions, sample=40)
    rag.main(config)
    lines: list[str] = []
    path = assemble.main(rag.plan_pipeline(config, config.out / "system"), notify=lines.append)
    assert lines[-1].startswith("confidence is the raw probability: ")  # too few right answers after three steps
    pipeline = Pipeline.load(path, reader="rag-token")
    assert (pipeline.k, pipeline.notes) == (3, ())  # the reader was trained with this retriever
    batch_questions = read_answerable(folders.test_questions, 40)
    answers = pipeline.ask([question.text for question in batch_questions], min_confidence=0)
    assert Pipeline.load(path).reader.fingerprint == pipeline.reader.fingerprint
    assert all(len(answer.sources) == 3 for answer in answers)
    model, retriever = rag.load_models(
        replace_settings(config, retriever=config.out / "model", generator=config.out / "generator")
    )
    search = generator_training.make_passage_finder(
        FrozenIndex.open(config.corpus, config.retriever, config, config.index), retriever.questions, 3, "cpu"
    )
    figures = generator_training.evaluate_generator(model.generator, search, batch_questions, device="cpu", regex=False)
    right = generator_training.count_exact_matches(
        [answer.text or "" for answer in answers], batch_questions, regex=False
    )
    assert figures["em"] == pytest.approx(right / len(batch_questions), abs=1 / len(batch_questions))
    with pytest.raises(BadInput, match="are both rag-token"):
        assemble.get_generators_by_kind((config.out / "generator", config.out / "system" / "rag-token"))
    with pytest.raises(BadInput, match=r"is not a generator trained with ragqa: it has no readable generator\.json"):
        assemble.get_generators_by_kind((folders.encoder,))
