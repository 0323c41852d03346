"""Runs of a span reader: steps, evaluations, killed runs, and inputs that are refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import WORDS
from torch import Tensor

from pipelines.common import run
from pipelines.common.learning_rates import compute_rate
from pipelines.span_reader import loop as span_reader
from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.loop import main
from pipelines.span_reader.reader_evaluation import make_gold_set
from ragqa.artefacts.machine import describe_hardware
from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, NonFiniteLoss
from ragqa.models.span_readers import MlpSpanReader, SpanReader
from ragqa.question_files import read_questions
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.runtime.export import export
from ragqa.runtime.scorer import load_scorer
from ragqa.runtime.tokens import TextTokenizer, TokenInput
from ragqa.settings.groups import replace_settings
from ragqa.training import precision
from ragqa.training.log import read_rows
from ragqa.types import Hit, Passage
from tests.helpers import tiny
from tests.helpers.models import make_tiny_config
from tests.helpers.span_reader import make_config, read_figures


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.TinyWorld, tmp_path: Path) -> ReaderConfig:
    return make_config(small, world, tmp_path)


def test_accumulated_parts_equal_the_whole_batch(config: ReaderConfig, monkeypatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: torch.enable_grad())
    config = replace(config, dropout=0.0, dev=None, held_out=0.0, lr=1e-3)
    main(config)
    main(replace(config, out=config.out / "2", accumulate=2))
    whole, parts = read_figures(config.out), read_figures(config.out / "2")
    for name in ("loss", "span_nll", "relevance_bce", "right", "grad_norm"):
        assert [row[name] for row in parts] == pytest.approx([row[name] for row in whole], rel=1e-3)


def kill_at_step(monkeypatch: pytest.MonkeyPatch, kill_step: int) -> Any:
    """Kill the next run before a step; return the function that the patch replaced."""
    step = span_reader.train_step

    def stop_or_step(run: Any, *arguments: Any) -> None:
        if run.step == kill_step:
            raise KeyboardInterrupt
        step(run, *arguments)

    monkeypatch.setattr(span_reader, "train_step", stop_or_step)
    return step


@pytest.mark.parametrize(("kill_step", "has_teacher"), [(2, False), (5, False), (5, True)])
def test_a_killed_run_takes_the_same_steps(
    config: ReaderConfig, monkeypatch, kill_step: int, has_teacher: bool
) -> None:
    """Killed before the first checkpoint, and after it; with and without a teacher."""
    config = replace(config, loss="hard", hard_warmup=0.1, accumulate=2)
    if has_teacher:
        teacher = main(replace(config, out=config.out.with_name("teacher"), seed=1, steps=2))
        config = replace(config, teacher=teacher)
    whole = main(config)
    broken = replace(config, out=config.out.with_name("broken"))
    step = kill_at_step(monkeypatch, kill_step)
    with pytest.raises(KeyboardInterrupt):
        main(broken)
    monkeypatch.setattr(span_reader, "train_step", step)
    resumed = main(broken)
    one, other = SpanReader.load(whole).state_dict(), SpanReader.load(resumed).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert read_figures(broken.out) == read_figures(config.out)
    assert [row["step"] for row in read_figures(config.out) if "span_nll" in row] == list(range(6))


def test_a_run_continues_in_the_precision_it_began_with(config: ReaderConfig, monkeypatch) -> None:
    """A later measurement does not change the precision. On other hardware the run measures again."""
    monkeypatch.setattr(precision, "_cpu_has_instructions", lambda: True)
    monkeypatch.setattr(precision, "_bfloat16_takes_less", lambda: True)
    main(config)
    broken = replace(config, out=config.out.with_name("broken"))
    step = kill_at_step(monkeypatch, 5)
    with pytest.raises(KeyboardInterrupt):
        main(broken)
    monkeypatch.setattr(span_reader, "train_step", step)
    monkeypatch.setattr(precision, "_bfloat16_takes_less", lambda: False)
    main(broken)
    assert read_figures(broken.out) == read_figures(config.out)

    def read_precision() -> list[str]:
        precision: list[str] = json.loads((broken.out / "config.json").read_text())["precision"]
        return precision

    assert read_precision() == ["bfloat16", describe_hardware()]
    monkeypatch.setattr("pipelines.common.run_directory.describe_hardware", lambda: "another")
    main(broken)
    assert read_precision() == ["float32", "another"] and not precision.is_bfloat16_fast("cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_gpu_has_the_losses_of_a_cpu(config: ReaderConfig, device: str) -> None:
    config = replace(config, dropout=0.0, accumulate=2)
    main(config)
    other = replace(config, out=config.out.with_name("other"), device=device)
    main(other)
    losses, other_losses = ([row["loss"] for row in read_rows(run.out) if "loss" in row] for run in (config, other))
    assert len(losses) == 6 and other_losses == pytest.approx(losses, rel=3e-2)
    assert SpanReader.load(other.out / "model").max_span == 4


def test_held_out_questions_are_evaluated_during_training(config: ReaderConfig) -> None:
    lines: list[str] = []
    main(config, notify=lines.append)
    rows = [row for row in read_figures(config.out) if "em" in row]
    assert [row["step"] for row in rows] == [4, 6]  # an untrained reader is not evaluated
    assert all(row["em"] == pytest.approx((row["gold_em"] + row["dev_em"]) / 2) for row in rows)
    assert lines[0].startswith("questions to train on: ") and "the best on held-out questions" in lines[-1]
    saved = SpanReader.load(config.out / "model")
    assert (saved.max_tokens, saved.max_span, saved.config.reader) == (32, 4, "ends")
    scorer = load_scorer(config.out / "model")
    (scores,) = scorer.score([TokenInput([2, 10, 3, *range(20, 30), 3], 3)])
    assert scores.make_table(slice(3, 13), 30).shape == (10, 4), "spans longer than those of training do not compete"


def test_the_best_weights_are_saved(config: ReaderConfig, monkeypatch) -> None:
    values, weights = iter([0.1, 0.4, 0.3]), []

    def record_weights(reader: SpanReader, *_: Any) -> dict[str, float]:
        weights.append({name: value.clone() for name, value in reader.state_dict().items()})
        return {"em": next(values)}

    monkeypatch.setattr(span_reader, "evaluate", record_weights)
    written = SpanReader.load(main(replace(config, eval_every=2))).state_dict()
    assert all(torch.equal(written[name], value) for name, value in weights[1].items())
    assert not any(torch.equal(written["head.weight"], weights[other]["head.weight"]) for other in (0, 2))


def test_evaluations_use_the_precision_of_training_and_no_titles(config: ReaderConfig) -> None:
    class RecordingSet:
        name = "recording"

        def evaluate(self, reader: Any) -> dict[str, float]:
            return {"recording_em": float(torch.is_autocast_enabled("cpu")), "training": float(model.training)}

    model = SpanReader.from_encoder(config.encoder).train()
    recording: Any = RecordingSet()
    found = span_reader.evaluate(model, TextTokenizer(config.encoder), [recording], config)
    assert found == dict.fromkeys(("recording_em", "em"), float(precision.is_bfloat16_fast("cpu"))) | {"training": 0.0}
    assert model.training
    question = next(iter(read_questions(config.train[0])))
    (hits,) = make_gold_set([question]).hits
    assert [(hit.passage.title, hit.passage.text) for hit in hits] == [("", question.passages[0])]


def test_a_run_can_continue_compiled(config: ReaderConfig, monkeypatch) -> None:
    config = replace(config, dev=None, held_out=0.0, dropout=0.0)
    step, compiled = kill_at_step(monkeypatch, 4), []
    with pytest.raises(KeyboardInterrupt):
        main(config)
    monkeypatch.setattr(span_reader, "train_step", step)
    monkeypatch.setattr(run, "compile_encoders", compiled.append)
    main(replace(config, compile=True))
    assert len(compiled) == 1 and [row["step"] for row in read_figures(config.out)] == list(range(6))


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert"])
def test_any_encoder_becomes_a_reader(family: str, config: ReaderConfig, tmp_path: Path) -> None:
    """The reader is trained, exported to 8 bits, and answers a question."""
    from transformers import AutoModel

    torch.manual_seed(0)
    encoder = tmp_path / "encoder"
    AutoModel.from_config(make_tiny_config(family, vocabulary=len(WORDS))).save_pretrained(encoder)
    (encoder / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    model = main(replace(config, encoder=encoder, steps=2))
    assert all(math.isfinite(row["loss"]) for row in read_figures(config.out) if "loss" in row)
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


def test_training_stops_when_patience_is_exhausted(config: ReaderConfig, monkeypatch) -> None:
    values = iter([0.1, 0.4, 0.3, 0.2, 0.9])  # at steps 2, 4, 6 and 8
    monkeypatch.setattr(span_reader, "evaluate", lambda *_: {"em": next(values)})
    config = replace(config, steps=20, eval_every=2, patience=2)
    main(config)
    rows = read_figures(config.out)
    assert [row["em"] for row in rows if "em" in row] == [0.1, 0.4, 0.3, 0.2]
    assert max(row["step"] for row in rows if "loss" in row) == 7


def test_frozen_embeddings_equal_those_of_the_encoder(config: ReaderConfig) -> None:
    from transformers import AutoModel

    trained = SpanReader.load(main(config)).encoder.embeddings.word_embeddings.weight
    assert torch.equal(trained, AutoModel.from_pretrained(config.encoder).embeddings.word_embeddings.weight)
    free = replace(config, out=config.out.with_name("free"), freeze_embeddings=False)
    assert not torch.equal(trained, SpanReader.load(main(free)).encoder.embeddings.word_embeddings.weight)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_step(config: ReaderConfig, monkeypatch) -> None:
    before_and_after: list[Tensor] = []
    load_models = span_reader.load_models

    def load_spoilt_models(*arguments: Any) -> Any:
        reader, teacher = load_models(*arguments)
        reader.head.weight.data[:] = math.nan
        before_and_after.extend([reader.encoder.encoder.layer[0].attention.self.query.weight] * 2)
        before_and_after[1] = before_and_after[0].detach().clone()
        return reader, teacher

    monkeypatch.setattr(span_reader, "load_models", load_spoilt_models)
    with pytest.raises(NonFiniteLoss, match="step 0"):
        main(replace(config, dev=None, held_out=0.0))
    assert torch.equal(*before_and_after)


def test_training_answers_can_be_patterns(config: ReaderConfig, tmp_path: Path) -> None:
    file = tmp_path / "patterns.jsonl"
    rows = [json.loads(line) for line in config.train[1].read_text().splitlines()]
    file.write_text("".join(json.dumps({**row, "answers": [f"{row['answers'][0]}|nothing"]}) + "\n" for row in rows))
    main(replace(config, train=(), patterns=(file,), held_out=0.0, dev=None, steps=3))
    assert [row["right"] for row in read_figures(config.out)] == [1.0, 1.0, 1.0]


def test_a_teacher_needs_the_same_wordpieces(config: ReaderConfig, tmp_path: Path) -> None:
    config = replace(config, dev=None, held_out=0.0, steps=2)
    teacher = main(replace(config, out=tmp_path / "teacher"))
    main(replace(config, teacher=teacher))
    assert all(row["kl"] > 0 for row in read_figures(config.out))
    tokenizer = json.loads((teacher / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {"w1": 7, "w2": 6}
    (teacher / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(BadInput, match="a reader of this recipe with the encoder's wordpieces is needed"):
        main(replace(config, out=tmp_path / "other", teacher=teacher))


def test_only_a_reader_that_scores_relevance_orders_passages(config: ReaderConfig, tmp_path: Path) -> None:
    """ORQA's reader scores only spans. It is refused before anything is mined."""
    MlpSpanReader.from_encoder(config.encoder, hidden=16, max_span=4).save(tmp_path / "mlp")
    (tmp_path / "mlp" / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    with pytest.raises(BadInput, match="mlp: a reader with the head 'ends' is needed, because 'mlp' does not score"):
        main(replace(config, rerank=tmp_path / "mlp"))
    assert not (config.out / "mined").exists()


def test_the_window_is_limited_by_the_positions_of_the_encoder(config: ReaderConfig, tmp_path: Path) -> None:
    """A teacher with a shorter window is refused."""
    from transformers import AutoModel

    short = tmp_path / "short"
    AutoModel.from_config(make_tiny_config("bert", vocabulary=len(WORDS))).save_pretrained(short)
    (short / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    config, lines = replace(config, dev=None, held_out=0.0, steps=2, max_input=60), []
    trained = main(replace(config, encoder=short, out=tmp_path / "made"), notify=lines.append)
    assert lines[0] == f"{short} reads at most 40 wordpieces: --max-input is lowered from 60 to 40"
    assert (
        json.loads((trained / "config.json").read_text())["reader_tokens"] == SpanReader.load(trained).max_tokens == 40
    )
    with pytest.raises(BadInput, match="reads 40 wordpieces at most: lower --max-input to that"):
        main(replace(config, teacher=trained))


@pytest.mark.parametrize(("name", "value"), [("reader_tokens", "many"), ("reader_span", -4)])
def test_a_saved_reader_with_an_impossible_setting_is_refused(
    config: ReaderConfig, tmp_path: Path, name: str, value: Any
) -> None:
    trained = main(replace(config, dev=None, held_out=0.0, steps=2))
    settings = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**settings, name: value}))
    with pytest.raises(DamagedArtefact, match=f"has {name}: {value!r}"):
        export(trained, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.thorough
def test_a_model_that_onnx_runtime_cannot_compute_is_not_exported(config: ReaderConfig, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModel

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
    deberta = AutoConfig.for_model("deberta-v2", **sizes, **positions, vocab_size=len(WORDS), pad_token_id=0)
    SpanReader(AutoModel.from_config(deberta)).save(tmp_path / "deberta")
    (tmp_path / "deberta" / "tokenizer.json").write_bytes((config.encoder / "tokenizer.json").read_bytes())
    with pytest.raises(ArtefactError, match=r"cannot compute this model in 8 bits .*answer with its torch directory"):
        export(tmp_path / "deberta", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_training_continues_from_a_reader(config: ReaderConfig, tmp_path: Path) -> None:
    config = replace(config, dev=None, held_out=0.0, steps=2)
    trained = main(config)
    reader, _ = span_reader.load_models(replace(config, encoder=trained, max_input=64), TextTokenizer(trained))
    assert reader.max_tokens == 64  # the limit of the new run, not of the old one
    before = SpanReader.load(trained)
    assert all(torch.equal(a, b) for a, b in zip(reader.parameters(), before.parameters(), strict=True))
    assert span_reader.derive_seed(config) == config.seed
    assert span_reader.derive_seed(replace(config, encoder=trained)) != config.seed, (
        "a second run must not repeat the batches of the first"
    )
    main(replace(config, encoder=trained, out=tmp_path / "on"))


def test_a_reader_learns_from_answers_alone(config: ReaderConfig) -> None:
    """The word after w50 is the answer; the reader finds it for held-out questions."""
    config = replace(
        config, train=config.train[1:], steps=80, batch=8, lr=3e-3, warmup=8, dropout=0.0, eval_every=80, sample=10
    )
    main(config)
    rows = read_figures(config.out)
    values = [row["span_nll"] for row in rows if "span_nll" in row]
    # So small a reader finds the span in each passage but not the right passage, which costs log 2.
    assert sum(values[:5]) / 5 > 2.5 and sum(values[-5:]) / 5 < 0.8
    assert [row["dev_em"] for row in rows if "dev_em" in row][-1] >= 0.8


def make_bad_config(config: ReaderConfig, tmp_path: Path, case: str) -> ReaderConfig:
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"question": "w60 w61 w100", "answers": ["nowhere"]}\n')
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text('{"question": "w60", "answers": ["nowhere"], "passages": ["w1 w2"]}\n')
    options: dict[str, dict[str, Any]] = {
        "no index for pairs": {"index": None, "dev": None},
        "answers in no passage of the index": {"train": (strange,)},
        "answers in no gold passage": {"train": (elsewhere,)},
        "no file": {"train": (tmp_path / "none.jsonl",)},
        "no index": {"index": tmp_path},
        "no vectors": {"retriever": "dense"},
        "no encoder": {"encoder": tmp_path},
        "a directory of something else": {"out": tmp_path},
        "no held-out questions left": {"exclude": (config.dev,)},
        "patience without evaluations": {"patience": 2, "dev": None, "held_out": 0.0},
        "no teacher": {"teacher": tmp_path / "none"},
        "an export": {"encoder": get_weights_dir() / "reader"},
    }
    return replace(config, **options[case])


MESSAGES = {
    "no index for pairs": "train.jsonl: questions without gold passages need --index",
    "answers in no passage of the index": "strange.jsonl: the index finds no passage that holds an answer",
    "answers in no gold passage": "no question has a gold passage that contains its answer",
    "no file": "none.jsonl cannot be read",
    "no index": "is not a ragqa directory",
    "no vectors": "cannot do dense",
    "no encoder": "has no tokenizer.json",
    "a directory of something else": "is not the directory of a run, because it holds ",
    "no held-out questions left": "all of its questions are in the files of --exclude",
    "patience without evaluations": "--patience waits for held-out questions: give --dev, or",
    "no teacher": "is not a reader",
    "an export": "is an export: make torch weights of it with restore_weights of ragqa.runtime.restore",
}


@pytest.mark.parametrize("case", MESSAGES)
def test_bad_input_is_one_clear_line(config: ReaderConfig, tmp_path: Path, case: str) -> None:
    from ragqa.errors import RagqaError

    with pytest.raises(RagqaError, match=MESSAGES[case]) as caught:
        main(make_bad_config(config, tmp_path, case))
    assert "\n" not in str(caught.value)
    assert not (config.out / "model").exists()


def test_all_settings_out_of_range_are_named_together(config: ReaderConfig) -> None:
    with pytest.raises(BadInput, match=r"negatives = -1.*: out of range"):
        replace_settings(config, negatives=-1, batch=0)
    with pytest.raises(BadInput, match=r"near_misses = 0\.6: out of range \(near_misses: at most 1 together with"):
        replace_settings(config, near_misses=0.6, unanswerable=0.6)
    with pytest.raises(BadInput, match=r"batch = 0, .*shares = "):
        replace(config, shares=(1.0,), batch=0)
    with pytest.raises(BadInput, match=r"accumulate = 3: out of range \(accumulate: a divisor of the batch, 4\)"):
        replace(config, accumulate=3)
    with pytest.raises(BadInput, match=r"per_passage: without a teacher"):
        replace(config, per_passage=True, teacher=config.encoder)
    with pytest.raises(BadInput, match=r"--train or --patterns is needed"):
        replace(config, train=())
    with pytest.raises(BadInput, match="give --index as well"):
        replace(config, index=None)


def test_learning_rates_by_hand() -> None:
    rates = [compute_rate(step, peak=1.0, warmup=2, total=6) for step in range(7)]
    assert rates == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
