"""Fusion-in-Decoder and the closed book: what they learn, that broken runs go on, and that a pipeline answers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import interrupt, untimed

from pipelines.common import generator_training
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
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.Tiny:
    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def plain(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    make_from_encoder(small, decoder_layers=1).save(path := tmp_path_factory.mktemp("plain"))
    return path


@pytest.fixture
def config(world: tiny.Tiny, plain: Path, tmp_path: Path) -> FidConfig:
    return make_config(
        FidConfig,
        index=world.corpus,
        generator=plain,
        questions=world.train,
        dev=world.dev,
        out=tmp_path / "run",
        k=3,
        **FEW,
    )


def closed(config: FidConfig) -> FidConfig:
    return make_config(
        FidConfig,
        k=0,
        generator=config.writing.generator,
        questions=config.questions,
        dev=config.held_out.dev,
        out=config.out,
        **FEW,
    )


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [untimed(row) for row in read_rows(out)]


@pytest.mark.parametrize("kind", ["fid", "closed-book"])
def test_a_broken_run_takes_the_steps_of_an_unbroken_one(config: FidConfig, kind: str) -> None:
    """With dropout, and killed twice; what is written is the kind that was trained."""
    settings = config if kind == "fid" else closed(config)
    fid.train(settings)
    broken = replace_settings(settings, out=config.out.with_name("broken"))
    interrupt(fid.train, broken, 1, 5)
    fid.train(broken)
    assert rows_of(settings.out) == rows_of(broken.out)
    scored = [row for row in rows_of(settings.out) if "em" in row]
    assert [row["step"] for row in scored] == [0, 3, 6]
    assert all(("recall@1" in row) == (kind == "fid") for row in scored)
    assert load_generator(settings.out / "model").kind == kind


def test_the_loss_of_a_closed_book_is_that_of_the_question_alone(config: FidConfig) -> None:
    """The reference is transformers' model, one question at a time."""
    settings = replace_settings(closed(config), dropout=0.0, steps=1)
    fid.train(settings)
    (row,) = [row for row in rows_of(settings.out) if "nll" in row]
    generator = load_generator(config.writing.generator, "closed-book")
    asked, answers = generator_training.draw_questions(
        writing_questions(config), batch=settings.batch, seed=settings.seed, step=0
    )
    tokens, wanted = generator.seq2seq.tokens, []
    for question, answer in zip(asked, answers, strict=True):
        labels = torch.tensor([[*tokens.encode_bare(answer), tokens.end]])
        ids = torch.tensor(tokens.encode([question.text]))
        before = torch.tensor([[generator.seq2seq.conventions.start, *labels[0, :-1].tolist()]])
        with torch.no_grad():
            logits = generator.seq2seq.model.eval()(input_ids=ids, decoder_input_ids=before).logits
        wanted.append(rag_token_nll(logits[:, None], torch.zeros(1, 1), labels).item())
    assert row["nll"] == pytest.approx(sum(wanted) / 4, rel=2e-2)  # the step is in bfloat16


def writing_questions(config: FidConfig) -> Any:
    from pipelines.common.questions import read_answerable

    return read_answerable(config.questions)


def test_the_generator_reads_what_the_index_finds(config: FidConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training reads BM25's best k in their order, as the resulting pipeline does."""
    read: list[list[list[Passage]]] = []
    assembled = fid.generator_training.load_for_training

    def opened(*arguments: Any, **options: Any) -> Any:
        generator = assembled(*arguments, **options)
        make_inputs = generator.make_inputs

        def seen(questions: list[str], passages: list[list[Passage]]) -> Any:
            read.append(passages)
            return make_inputs(questions, passages)

        monkeypatch.setattr(generator, "make_inputs", seen)
        return generator

    monkeypatch.setattr(fid.generator_training, "load_for_training", opened)
    told: list[str] = []
    path = fid.main(replace_settings(config, steps=1, dev=None), notify=told.append)
    pipeline = Pipeline.load(path, reader="fid")
    asked, _ = generator_training.draw_questions(
        writing_questions(config), batch=config.batch, seed=config.seed, step=0
    )
    hits = pipeline.retriever.search([question.text for question in asked], 3)
    assert [[p.id for p in found] for found in read[0]] == [[hit.passage.id for hit in found] for found in hits]
    answers = pipeline.ask([question.text for question in asked], min_confidence=0)
    assert pipeline.k == 3 and [len(answer.sources) for answer in answers] == list(map(len, hits))


def test_without_passages_or_an_index_the_book_is_closed(config: FidConfig) -> None:
    assert not config.is_closed_book
    assert replace_settings(config, k=0).is_closed_book and replace_settings(config, index=None).is_closed_book


def test_a_closed_book_reads_nothing(config: FidConfig, world: tiny.Tiny) -> None:
    told: list[str] = []
    path = fid.main(replace_settings(closed(config), index=world.corpus), notify=told.append)
    assert told[-1].startswith("confidence is the raw probability: ")
    answer = Pipeline.load(path, reader="closed-book").ask("w60 w61 w100")
    assert answer.sources == ()
    assert fid.main(replace_settings(closed(config), out=config.out / "bare", steps=1)) == config.out / "bare" / "model"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["fid", "closed-book"])
def test_memorised_answers_raise_an_alarm(
    config: FidConfig, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions are learned, and those held out ask for what stands nowhere: it is said once."""
    (tmp_path / "two.jsonl").write_text("".join(config.questions.read_text().splitlines(keepends=True)[:2]))
    (tmp_path / "dev.jsonl").write_text('{"question": "w60 w61 w139", "answers": ["w999"]}\n')
    changed: dict[str, Any] = {"questions": tmp_path / "two.jsonl", "dev": tmp_path / "dev.jsonl"}
    changed |= {"steps": 70, "eval_every": 20}
    changed |= {"dropout": 0.0, "lr": 1e-2}
    settings = config if kind == "fid" else closed(config)
    told: list[str] = []
    fid.train(replace_settings(settings, **changed), notify=told.append)
    (alarm,) = [line for line in told if "ALARM" in line]
    assert "memorised" in alarm and ("passages are hardly read" in alarm) == (kind == "fid")
    alarms = [row["alarm"] for row in read_rows(config.out) if "alarm" in row]
    assert alarms == [alarm.partition("ALARM: ")[2]]
    # Killed after the checkpoint of the step at which it was raised, a run raises it once more.
    at = next(row["step"] for row in read_rows(config.out) if "alarm" in row)
    broken = replace_settings(settings, out=tmp_path / "broken", save_every=20, **changed)
    interrupt(fid.train, broken, at)
    fid.train(broken)
    assert [row["alarm"] for row in read_rows(broken.out) if "alarm" in row] == alarms


@pytest.mark.parametrize(("before", "after"), [("rag-token", "rag-sequence"), ("rag-token", "fid")])
def test_a_generator_of_another_kind_keeps_the_template(config: FidConfig, before: str, after: str) -> None:
    seq2seq = Seq2Seq.load(config.writing.generator)
    template = Template("{question} <- {title}: {passage}")
    begun = make_generator(seq2seq, before, template=template, question_tokens=seq2seq.tokens)
    made = generator_training.prepare_for_training(begun, after, config, config.writing, 3)
    assert (made.kind, made.passages) == (after, 3)
    assert made.template == template
    if after != "fid":  # whose passages each stand behind the question's text
        assert made.question_tokens is seq2seq.tokens


def test_limits_of_a_generator_are_reported(config: FidConfig) -> None:
    told: list[str] = []
    longer = replace_settings(config, max_input=100_000, max_answer=3)
    made = generator_training.load_for_training("fid", longer, longer.writing, 2, told.append)
    longest = made.seq2seq.max_tokens
    assert made.max_input == longest and told == [f"--max-input 100000: this generator takes at most {longest} tokens"]


def test_a_pipeline_is_calibrated_on_its_device(config: FidConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``gpus`` and nothing else said, on a GPU."""
    devices: list[str] = []
    monkeypatch.setattr(fid, "open_retriever", lambda *_, device: devices.append(device))
    monkeypatch.setattr(fid, "calibrate_reader", lambda *_, device, **__: devices.append(device))
    monkeypatch.setattr(fid, "read_generator_kind", lambda _: "fid")
    monkeypatch.setattr(fid, "Pipeline", SimpleNamespace(load=lambda *_, **__: SimpleNamespace(save=id)))
    fid.publish(replace_settings(config, gpus=True), config.index)
    assert devices == ["cuda", "cuda"]


def test_unusable_settings_are_refused(config: FidConfig, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="nowhere does not exist"):
        fid.main(replace_settings(closed(config), index=tmp_path / "nowhere"))
    assert not config.out.exists()
    with pytest.raises(BadInput, match="has only 40 passages, but 50 are to be read"):
        fid.train(replace_settings(config, k=50))
    with pytest.raises(BadInput, match="k = -1, max_answer = 1: out of range"):
        replace_settings(config, k=-1, max_answer=1)
