"""Fusion-in-Decoder and the closed book learn, continue killed runs and answer in a pipeline."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import interrupt, untimed

from pipelines.common import generator_training
from pipelines.common.questions import read_answerable
from pipelines.fid import loop as fid
from pipelines.fid.config import FidConfig
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.generation.encoder_decoder import make_from_encoder
from ragqa.models.generation.generators import load_generator, make_generator
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.generation.template import Template
from ragqa.objectives import rag_token_nll
from ragqa.pipeline import Pipeline
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training.log import read_rows
from ragqa.types import Passage
from tests.helpers import tiny

FEW: dict[str, Any] = {"steps": 6, "batch": 4, "lr": 1e-3, "warmup": 1, "eval_every": 3, "save_every": 2}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def generator(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("generator")
    make_from_encoder(small, decoder_layers=1).save(path)
    return path


@pytest.fixture
def config(world: tiny.TinyWorld, generator: Path, tmp_path: Path) -> FidConfig:
    return make_config(
        FidConfig,
        index=world.corpus,
        generator=generator,
        questions=world.train,
        dev=world.dev,
        out=tmp_path / "run",
        k=3,
        **FEW,
    )


def close_book(config: FidConfig) -> FidConfig:
    """Return the same settings for a generator without passages."""
    return make_config(
        FidConfig,
        k=0,
        generator=config.writing.generator,
        questions=config.questions,
        dev=config.held_out.dev,
        out=config.out,
        **FEW,
    )


def read_untimed_rows(out: Path) -> list[dict[str, Any]]:
    return [untimed(row) for row in read_rows(out)]


@pytest.mark.parametrize("kind", ["fid", "closed-book"])
def test_a_killed_run_takes_the_same_steps(config: FidConfig, kind: str) -> None:
    """With dropout, and killed twice; the saved generator has the kind that was trained."""
    settings = config if kind == "fid" else close_book(config)
    fid.train(settings)
    broken = replace_settings(settings, out=config.out.with_name("broken"))
    interrupt(fid.train, broken, 1, 5)
    fid.train(broken)
    assert read_untimed_rows(settings.out) == read_untimed_rows(broken.out)
    scored = [row for row in read_untimed_rows(settings.out) if "em" in row]
    assert [row["step"] for row in scored] == [0, 3, 6]
    assert all(("recall@1" in row) == (kind == "fid") for row in scored)
    assert load_generator(settings.out / "model").kind == kind


def test_the_loss_of_a_closed_book_agrees_with_transformers(config: FidConfig) -> None:
    """The reference computes one question at a time."""
    settings = replace_settings(close_book(config), dropout=0.0, steps=1)
    fid.train(settings)
    (row,) = [row for row in read_untimed_rows(settings.out) if "nll" in row]
    generator = load_generator(config.writing.generator, "closed-book")
    questions, answers = generator_training.draw_questions(
        read_answerable(config.questions), batch=settings.batch, seed=settings.seed, step=0
    )
    tokens, losses = generator.seq2seq.tokens, []
    for question, answer in zip(questions, answers, strict=True):
        labels = torch.tensor([[*tokens.encode_bare(answer), tokens.end]])
        ids = torch.tensor(tokens.encode([question.text]))
        decoder_ids = torch.tensor([[generator.seq2seq.conventions.start, *labels[0, :-1].tolist()]])
        with torch.no_grad():
            logits = generator.seq2seq.model.eval()(input_ids=ids, decoder_input_ids=decoder_ids).logits
        losses.append(rag_token_nll(logits[:, None], torch.zeros(1, 1), labels).item())
    assert row["nll"] == pytest.approx(sum(losses) / 4, rel=2e-2)  # the step is in bfloat16


def test_the_generator_reads_what_the_index_finds(config: FidConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training reads BM25's best k in their order, as the resulting pipeline does."""
    batches: list[list[list[Passage]]] = []
    load_for_training = fid.generator_training.load_for_training

    def load_and_record(*arguments: Any, **options: Any) -> Any:
        generator = load_for_training(*arguments, **options)
        make_inputs = generator.make_inputs

        def record_inputs(questions: list[str], passages: list[list[Passage]]) -> Any:
            batches.append(passages)
            return make_inputs(questions, passages)

        monkeypatch.setattr(generator, "make_inputs", record_inputs)
        return generator

    monkeypatch.setattr(fid.generator_training, "load_for_training", load_and_record)
    path = fid.main(replace_settings(config, steps=1, dev=None))
    pipeline = Pipeline.load(path, reader="fid")
    questions, _ = generator_training.draw_questions(
        read_answerable(config.questions), batch=config.batch, seed=config.seed, step=0
    )
    hits = pipeline.retriever.search([question.text for question in questions], 3)
    assert [[p.id for p in passages] for passages in batches[0]] == [[hit.passage.id for hit in row] for row in hits]
    answers = pipeline.ask([question.text for question in questions], min_confidence=0)
    assert pipeline.k == 3 and [len(answer.sources) for answer in answers] == list(map(len, hits))


def test_without_passages_or_without_an_index_the_book_is_closed(config: FidConfig) -> None:
    assert not config.is_closed_book
    assert replace_settings(config, k=0).is_closed_book and replace_settings(config, index=None).is_closed_book


def test_a_closed_book_answers_without_passages(config: FidConfig, world: tiny.TinyWorld) -> None:
    lines: list[str] = []
    path = fid.main(replace_settings(close_book(config), index=world.corpus), notify=lines.append)
    assert lines[-1].startswith("confidence is the raw probability: ")
    answer = Pipeline.load(path, reader="closed-book").ask("w60 w61 w100")
    assert answer.sources == ()
    assert (
        fid.main(replace_settings(close_book(config), out=config.out / "bare", steps=1))
        == config.out / "bare" / "model"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["fid", "closed-book"])
def test_memorised_answers_raise_an_alarm(
    config: FidConfig, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two training questions are memorised; the held-out question has no answer in any passage."""
    (tmp_path / "two.jsonl").write_text("".join(config.questions.read_text().splitlines(keepends=True)[:2]))
    (tmp_path / "dev.jsonl").write_text('{"question": "w60 w61 w139", "answers": ["w999"]}\n')
    changes: dict[str, Any] = {"questions": tmp_path / "two.jsonl", "dev": tmp_path / "dev.jsonl"}
    changes |= {"steps": 70, "eval_every": 20}
    changes |= {"dropout": 0.0, "lr": 1e-2}
    settings = config if kind == "fid" else close_book(config)
    lines: list[str] = []
    fid.train(replace_settings(settings, **changes), notify=lines.append)
    (alarm,) = [line for line in lines if "ALARM" in line]
    assert "memorised" in alarm and ("passages are hardly read" in alarm) == (kind == "fid")
    alarms = [row["alarm"] for row in read_rows(config.out) if "alarm" in row]
    assert alarms == [alarm.partition("ALARM: ")[2]]
    # A run that is killed after the checkpoint of the alarm's step continues, and the log has one alarm.
    alarm_step = next(row["step"] for row in read_rows(config.out) if "alarm" in row)
    broken = replace_settings(settings, out=tmp_path / "broken", save_every=20, **changes)
    interrupt(fid.train, broken, alarm_step)
    fid.train(broken)
    assert [row["alarm"] for row in read_rows(broken.out) if "alarm" in row] == alarms


@pytest.mark.parametrize(("before", "after"), [("rag-token", "rag-sequence"), ("rag-token", "fid")])
def test_a_generator_of_another_kind_keeps_the_template(config: FidConfig, before: str, after: str) -> None:
    seq2seq = Seq2Seq.load(config.writing.generator)
    template = Template("{question} <- {title}: {passage}")
    start = make_generator(seq2seq, before, template=template, question_tokens=seq2seq.tokens)
    generator = generator_training.prepare_for_training(start, after, config, config.writing, 3)
    assert (generator.kind, generator.passages) == (after, 3)
    assert generator.template == template
    if after != "fid":  # FiD reads each passage after the text of the question
        assert generator.question_tokens is seq2seq.tokens


def test_limits_of_a_generator_are_reported(config: FidConfig) -> None:
    lines: list[str] = []
    longer = replace_settings(config, max_input=100_000, max_answer=3)
    generator = generator_training.load_for_training("fid", longer, longer.writing, 2, lines.append)
    longest = generator.seq2seq.max_tokens
    assert generator.max_input == longest and lines == [
        f"--max-input 100000: this generator takes at most {longest} tokens"
    ]


def test_a_pipeline_is_calibrated_on_its_device(config: FidConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``gpus`` alone, the device is a GPU."""
    devices: list[str] = []
    monkeypatch.setattr(fid, "open_retriever", lambda *_, device: devices.append(device))
    monkeypatch.setattr(fid, "calibrate_reader", lambda *_, device, **__: devices.append(device))
    monkeypatch.setattr(fid, "read_generator_kind", lambda _: "fid")
    monkeypatch.setattr(fid, "Pipeline", SimpleNamespace(load=lambda *_, **__: SimpleNamespace(save=id)))
    fid.publish(replace_settings(config, gpus=True), config.index)
    assert devices == ["cuda", "cuda"]


def test_unusable_settings_are_refused(config: FidConfig, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="nowhere does not exist"):
        fid.main(replace_settings(close_book(config), index=tmp_path / "nowhere"))
    assert not config.out.exists()
    with pytest.raises(BadInput, match="has only 40 passages, but 50 are to be read"):
        fid.train(replace_settings(config, k=50))
    with pytest.raises(BadInput, match="max_answer = 1, k = -1: out of range"):
        replace_settings(config, k=-1, max_answer=1)
