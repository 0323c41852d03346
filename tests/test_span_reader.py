"""The recipe of the reader: what it trains on, what a step does, and that a broken run goes on as if unbroken."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipelines import span_reader
from pipelines.span_reader import Batches, ReaderConfig, hard_negatives, held_out, main, occurrences, prepare
from ragqa.errors import BadInput, NonFiniteLoss
from ragqa.models.span_reader import IMPOSSIBLE, SpanReader, span_logits
from ragqa.questions import read_squad
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import checkpoint
from ragqa.training.schedule import warmup_linear


def squad(path: Path, *, articles: int = 8) -> Path:
    """A SQuAD file in which the answer is the word after the question's word."""
    data = []
    for a in range(articles):
        paragraphs = []
        for p in range(3):
            words = [f"w{(a * 31 + p * 7 + i * 3) % 1000}" for i in range(12)]
            context = " ".join(words)
            questions = [
                {
                    "id": f"{a}-{p}-{i}",
                    "question": f"what follows {words[i]}",
                    "answers": [{"text": words[i + 1], "answer_start": context.find(words[i + 1])}],
                }
                for i in range(0, 10, 2)
            ]
            paragraphs.append({"context": context, "qas": questions})
        data.append({"title": f"w{a}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"data": data}))
    return path


@pytest.fixture
def config(small: Path, tmp_path: Path) -> ReaderConfig:
    return ReaderConfig(
        train=squad(tmp_path / "squad.json"),
        encoder=small,
        out=tmp_path / "run",
        steps=6,
        batch=4,
        warmup=2,
        held_out=0.3,
        dropout=0.1,
        eval_every=100,
        save_every=3,
        eval_questions=8,
    )


def test_every_whole_occurrence_counts() -> None:
    pieces = TextTokenizer(span_reader_weights()).pieces(text := "Art is art; the art of Bart.")
    assert [text[pieces.offsets[a][0] : pieces.offsets[b][1]] for a, b in occurrences(text, "art", pieces)] == [
        "art",
        "art",
    ]
    assert occurrences(text, "", pieces) == []
    assert occurrences(text, "ar", pieces) == []


def span_reader_weights() -> Path:
    from ragqa.paths import weights_dir

    return weights_dir() / "encoder"


def test_span_logits_by_hand() -> None:
    start = torch.tensor([[9.0, 1.0, 2.0, 3.0]])
    end = torch.tensor([[9.0, 10.0, 20.0, 30.0]])
    inside = torch.tensor([[False, True, True, True]])
    scores = span_logits(start, end, inside, 2)
    possible = scores[0] > IMPOSSIBLE / 2
    assert possible.tolist() == [[False, False], [True, True], [True, True], [True, False]]
    assert scores[0][possible].tolist() == [11.0, 21.0, 22.0, 32.0, 33.0]


def test_a_negative_never_holds_the_answer(config: ReaderConfig) -> None:
    paragraphs = list(read_squad(config.train))
    rows = iter(hard_negatives(paragraphs))
    for n, paragraph in enumerate(paragraphs):
        for question in paragraph.questions:
            chosen = next(rows)
            assert n not in chosen
            for row in chosen:
                assert paragraphs[row].title == paragraph.title
                assert question.answers[0] not in paragraphs[row].text


def test_batches_mark_the_answer_and_depend_on_the_step_alone(config: ReaderConfig) -> None:
    tokenizer = TextTokenizer(config.encoder)
    passages, examples = prepare(list(read_squad(config.train)), tokenizer)
    config = replace(config, negatives=1.0, max_passage=6)
    batches = Batches(config, tokenizer, passages, examples)
    batch = batches[3]
    assert batch.group_N.tolist() == sorted(batch.group_N.tolist())
    golds = [row for row, _, _ in batch.spans]
    assert sorted(set(golds)) == [row for row in range(len(batch.rank_N)) if batch.rank_N[row] == 0]
    for row, first, last in batch.spans:
        assert first == last and bool(batch.inside_NL[row, first])
        asked = batch.ids_NL[row, 3].item()  # [CLS] what follows WORD
        assert batch.ids_NL[row, first].item() != asked
    again = Batches(config, tokenizer, passages, examples)[3]
    assert torch.equal(batch.ids_NL, again.ids_NL) and batch.spans == again.spans


def test_a_broken_run_takes_the_steps_of_an_unbroken_one(config: ReaderConfig, monkeypatch) -> None:
    whole = main(config)
    broken = replace(config, out=config.out.with_name("broken"))
    step = span_reader.train_step

    def killed(state, batch, config):
        if state.step == 4:
            raise KeyboardInterrupt
        return step(state, batch, config)

    monkeypatch.setattr(span_reader, "train_step", killed)
    with pytest.raises(KeyboardInterrupt):
        main(broken)
    monkeypatch.setattr(span_reader, "train_step", step)
    resumed = main(broken)
    one, other = SpanReader.load(whole).state_dict(), SpanReader.load(resumed).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    losses = {
        out: {
            r["step"]: r["span_nll"]
            for r in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
            if "span_nll" in r
        }
        for out in (config.out, broken.out)
    }
    assert losses[config.out] == losses[broken.out]
    assert sorted(losses[config.out]) == [1, 2, 3, 4, 5, 6]


def test_embeddings_stay_those_of_the_encoder(config: ReaderConfig) -> None:
    from transformers import AutoModel

    trained = SpanReader.load(main(config)).encoder.embeddings.word_embeddings.weight
    assert torch.equal(trained, AutoModel.from_pretrained(config.encoder).embeddings.word_embeddings.weight)


def test_a_loss_that_is_not_finite_stops_before_the_step(config: ReaderConfig) -> None:
    tokenizer = TextTokenizer(config.encoder)
    passages, examples = prepare(list(read_squad(config.train)), tokenizer)
    reader = SpanReader.from_encoder(config.encoder)
    reader.head.weight.data[:] = math.nan
    before = reader.encoder.encoder.layer[0].attention.self.query.weight.clone()
    state = checkpoint.TrainState(reader, torch.optim.AdamW(reader.parameters()))
    with pytest.raises(NonFiniteLoss, match="step 0"):
        span_reader.train_step(state, Batches(config, tokenizer, passages, examples)[0], config)
    assert torch.equal(before, reader.encoder.encoder.layer[0].attention.self.query.weight)


def test_it_learns(config: ReaderConfig) -> None:
    """Reading off the word that follows: the loss falls far below that of guessing."""
    config = replace(
        config, steps=150, batch=16, lr=3e-3, warmup=10, dropout=0.0, held_out=0.0, freeze_embeddings=False
    )
    main(config)
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    losses = [row["span_nll"] for row in rows if "span_nll" in row]
    assert sum(losses[:5]) / 5 > 3.5
    assert sum(losses[-5:]) / 5 < 2.0


def test_all_wrong_settings_are_named_at_once(config: ReaderConfig) -> None:
    with pytest.raises(BadInput, match=r"negatives = 2.*batch = 0"):
        replace(config, negatives=2, batch=0)


def test_held_out_is_a_share_of_the_titles() -> None:
    share = sum(held_out(f"title {n}", 0.05) for n in range(5000)) / 5000
    assert share == pytest.approx(0.05, abs=0.01)


def test_schedule_by_hand() -> None:
    rates = [warmup_linear(step, peak=1.0, warmup=2, total=6) for step in range(7)]
    assert rates == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
