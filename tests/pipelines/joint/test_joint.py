"""Joint training: the losses of the recipes, the schedule of their weights, and a pipeline with both readers."""

import math
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import interrupt, untimed

from pipelines.common.assemble import main as assemble
from pipelines.joint import loop as joint
from pipelines.joint.config import SPAN, JointConfig, JointSettings
from pipelines.joint.step import WeightedLoss, compute_rates
from pipelines.orqa import inverse_cloze_loop
from pipelines.realm import pretrain_loop
from ragqa.errors import BadInput
from ragqa.models.generation.generators import load_generator
from ragqa.pipeline import Pipeline
from ragqa.settings.groups import replace_settings
from ragqa.training.health import MAX_LOSS_USED, WINDOW, Health
from ragqa.training.log import read_rows
from tests.helpers import closed_world


@pytest.fixture(scope="module")
def world() -> closed_world.World:
    return closed_world.make_world(30, 5, 0, words=2)


@pytest.fixture(scope="module")
def folders(world: closed_world.World, tmp_path_factory: pytest.TempPathFactory) -> closed_world.WorldFolders:
    return closed_world.write_world(world, tmp_path_factory.mktemp("world"), width=32)


@pytest.fixture
def config(folders: closed_world.WorldFolders, tmp_path: Path) -> JointConfig:
    start = closed_world.init_encoder(folders, folders.root / "start", 0)
    cloze = replace_settings(
        closed_world.inverse_cloze_config(folders, start, folders.root / "cloze", seed=0, steps=3), batch=16
    )
    generator = closed_world.init_generator(start, folders.root / "generator", 0)
    settings = closed_world.joint_config(
        folders, start, inverse_cloze_loop.main(cloze), generator, tmp_path / "run", seed=0, steps=6
    )
    few = {"frozen": 1, "refresh_every": 2, "save_every": 2, "eval_every": 3, "warmup": 1, "dropout": 0.1}
    return replace_settings(
        settings,
        realm=replace_settings(settings.realm, batch=4, k=4),
        rag=replace_settings(settings.rag, batch=4, k=3),
        **few,
    )


def train_jointly(config: JointConfig, world: closed_world.World, **options: Any) -> Path:
    return joint.main(config, tagger=closed_world.ObjectTagger(world.objects), **options)


def test_without_warm_up_the_rate_is_zero_before_a_loss_begins(config: JointConfig) -> None:
    """A loss counts its steps from its own beginning, so earlier steps are negative."""
    few = replace_settings(config, warmup=0, frozen=0)
    late = WeightedLoss("gen_", 1.0, 3, 6, torch.nn.Linear(1, 1), lambda step: pytest.fail("the loss was computed"))
    assert [compute_rates(step, [late], few.rates)[2:] for step in (0, 3, 6)] == [[0, 0], [few.lr, few.lr], [0, 0]]


def read_steps(out: Path) -> list[dict[str, Any]]:
    """Return the logged training steps, without evaluations and swaps."""
    return [row for row in read_rows(out) if "grad_norm" in row]


def test_the_first_steps_equal_those_of_realm_and_later_steps_have_all_losses(
    config: JointConfig, world: closed_world.World
) -> None:
    """Before the generator begins to learn, a step equals one of ``pipelines.realm.pretrain``."""
    config = replace_settings(
        config, dropout=0.0, span=1.0, tune=replace_settings(SPAN, batch=4, beam=3, read=2, max_input=64)
    )
    train_jointly(config, world)
    rows = read_steps(config.out)
    assert [("gen_nll" in row, "span_nll" in row, "nll" in row) for row in rows] == (
        [(False, False, True)] * 3 + [(True, True, True)] * 3
    )
    assert all(math.isfinite(value) for row in rows for value in row.values())
    masked = JointSettings.split(config).masked
    alone = replace_settings(masked, out=config.out.with_name("realm"), dev=None, clip=config.clip)
    alone = replace_settings(alone, save_every=2, eval_every=3, warmup=1)
    pretrain_loop.main(alone, tagger=closed_world.ObjectTagger(world.objects))
    for joint_row, realm_row in zip(rows[:3], read_steps(alone.out), strict=False):
        for name in ("nll", "nll_alone", "utility", "entropy", "distinct", "grad_norm", "staleness"):
            assert joint_row[name] == pytest.approx(realm_row[name], rel=1e-4), name
    scored = [row for row in read_rows(config.out) if "recall@5" in row]
    assert [("em" in row, "span_em" in row) for row in scored] == [(False, False), (False, False), (True, True)]


def test_a_step_adds_the_weighted_gradients_of_both_losses(
    config: JointConfig, world: closed_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of a joint step is the weighted sum of the gradients of the two losses by themselves."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    config = replace_settings(config, dropout=0.0, gen_from=0.0, mlm=0.5, gen=2.0, frozen=0, steps=1)
    recorded: dict[str, Any] = {}

    def record_gradients(
        run: Any, retriever: Any, losses: list[WeightedLoss], config: JointConfig, rates: Any, **options: Any
    ) -> Any:
        gradients, model = [], run.state.model
        for part in losses[:2]:
            model.zero_grad()
            part.compute(0).loss.backward()
            gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        recorded["expected"] = [
            sum((w * g for w, g in zip((0.5, 2.0), pair, strict=True) if g is not None), torch.zeros(()))
            for pair in zip(*gradients, strict=True)
        ]
        model.zero_grad()
        rows = train_step(run, retriever, losses, replace_settings(config, clip=1e9), rates, **options)
        recorded["joint"] = [p.grad for p in model.parameters()]
        return rows

    train_step = joint.train_step
    monkeypatch.setattr(joint, "train_step", record_gradients)
    train_jointly(config, world)
    pairs = [(a, b) for a, b in zip(recorded["expected"], recorded["joint"], strict=True) if b is not None]
    assert len(pairs) > 20 and all(torch.allclose(a.expand_as(b), b, atol=1e-5) for a, b in pairs)


def test_pretraining_can_end_when_the_generator_begins(config: JointConfig, world: closed_world.World) -> None:
    train_jointly(replace_settings(config, mlm_until=0.5, gen_from=0.5), world)
    assert [("nll" in row, "gen_nll" in row) for row in read_steps(config.out)] == [(True, False)] * 3 + [
        (False, True)
    ] * 3
    start, result = load_generator(config.generator, "rag-token"), load_generator(config.out / "generator")
    assert any(not torch.equal(a, b) for a, b in zip(start.parameters(), result.parameters(), strict=True))


def test_impossible_weights_are_refused(config: JointConfig) -> None:
    with pytest.raises(BadInput, match=r"mlm_until = 0\.2: out of range \(mlm_until: from gen_from = 0\.5 to 1"):
        replace_settings(config, mlm_until=0.2)
    with pytest.raises(BadInput, match=r"gen_from = 0\.5"):
        replace_settings(config, mlm=0.0)  # the first half would have no loss
    with pytest.raises(BadInput, match=r"gen = 0"):
        replace_settings(config, gen=0.0)
    assert replace_settings(config, mlm=0.0, gen_from=0.0).first_question_step == 0


def test_a_loss_that_begins_later_has_its_own_warm_up(config: JointConfig) -> None:
    settings = replace_settings(config, steps=100, frozen=0, warmup=10, lr=1.0, retriever_lr=0.5, gen_from=0.5)
    unused: Any = None
    parts = [
        WeightedLoss("", 1.0, 0, 100, unused, unused),
        WeightedLoss("gen_", 1.0, 50, 100, unused, unused),
        WeightedLoss("span_", 0.0, 50, 100, unused, unused),
    ]
    rates = {step: compute_rates(step, parts, settings.rates) for step in (9, 49, 50, 59)}
    assert rates[9] == [0.5, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert rates[49][4:] == [0.0] * 4
    assert rates[50][4:] == [0.1, 0.1, 0.0, 0.0]
    assert rates[59][4:] == [1.0, 1.0, 0.0, 0.0]


def test_unused_passages_raise_an_alarm() -> None:
    health = Health()
    assert health.check_passages_used() == []
    for _ in range(WINDOW):
        health.check_step({"nll": 4.9, "nll_alone": 5.0, "distinct": 1.0, "entropy": 0.5})
    (line,) = health.check_passages_used()
    assert line.startswith("with passages the loss is 98% of that without: they are not used yet")
    for _ in range(WINDOW):
        health.check_step({"nll": 5.0 * MAX_LOSS_USED - 0.1, "nll_alone": 5.0, "distinct": 1.0, "entropy": 0.5})
    assert health.check_passages_used() == []


def test_a_killed_run_takes_the_same_steps(config: JointConfig, world: closed_world.World) -> None:
    """With dropout and a generator made of the run's encoder; killed before and after the generator begins."""
    config = replace_settings(config, generator=None, decoder_layers=1)
    train_jointly(config, world)
    broken = replace_settings(config, out=config.out.with_name("broken"))
    interrupt(partial(train_jointly, world=world), broken, 1, 5)
    train_jointly(broken, world)
    one, other = (
        [untimed(row) for row in read_rows(out) if "swap_version" not in row] for out in (config.out, broken.out)
    )
    assert one == other


@pytest.mark.thorough
def test_one_pipeline_answers_with_the_span_reader_and_the_generator(
    config: JointConfig, world: closed_world.World, folders: closed_world.WorldFolders
) -> None:
    config = replace_settings(
        config, span=1.0, steps=4, tune=replace_settings(SPAN, batch=4, beam=3, read=2, max_input=64)
    )
    train_jointly(config, world)
    path = assemble(joint.plan_pipeline(config))
    question = world.held_out[0].question
    span_answer, rag_answer = (
        Pipeline.load(path, reader=name).ask(question, min_confidence=0) for name in ("span", "rag-token")
    )
    assert Pipeline.load(path).ask(question, min_confidence=0) == span_answer
    assert span_answer.text is not None and span_answer.sources[0].span is not None
    assert {source.hit.passage.id for source in span_answer.sources} <= {s.hit.passage.id for s in rag_answer.sources}


def test_the_generator_starts_from_the_pretrained_encoder_when_it_begins(
    config: JointConfig, world: closed_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def record_equal_encoders(
        run: Any, retriever: Any, losses: list[WeightedLoss], config: JointConfig, rates: Any, **options: Any
    ) -> Any:
        model = run.state.model
        masked, learned = model.masked.model.state_dict(), model.generator.seq2seq.model.state_dict()
        layer = "encoder.layer.0.attention.self.query.weight"
        names = f"encoder.{layer}", f"decoder.bert.{layer}"
        if all(torch.equal(learned[name], masked[f"bert.{layer}"]) for name in names):
            steps.append(run.step)
        return train_step(run, retriever, losses, config, rates, **options)

    train_step = joint.train_step
    monkeypatch.setattr(joint, "train_step", record_equal_encoders)
    train_jointly(replace_settings(config, generator=None, decoder_layers=1), world)
    assert steps == [0, 3]  # when the run begins, and when the generator begins
