"""A generator made of a span reader: places of answers, the attention loss, and killed runs."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import interrupt
from safetensors.torch import load_file

from pipelines.common import generator_training
from pipelines.common.config import WritingConfig
from pipelines.rag import warm_generator_loop
from pipelines.rag.warm_generator_loop import (
    GoldBatch,
    GoldQuestions,
    WarmGeneratorConfig,
    compute_attention_nll,
    compute_rates,
    find_places,
    make_example,
)
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.generation.copying import Example
from ragqa.models.generation.generators import load_generator
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.span_readers import SpanReader, load_reader
from ragqa.objectives import IGNORED
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training.log import read_rows
from ragqa.types import Question


@pytest.fixture(autouse=True, scope="module")
def _set_peak_flops() -> Iterator[None]:
    """Set the peak of the device, because measuring it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.common.run.measure_peak_flops", lambda device: 1e12)
        yield


def write_questions(file: Path, count: int, seed: int, gold: bool = True) -> Path:
    """Write questions with answers w1000 to w1002 in their passages, and one question without a passage."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = [{"question": f"w999 w{seed}", "answers": ["w1"]}]
    for number in range(count if gold else 0):
        words = [f"w{n}" for n in rng.integers(10, 40, 8)]
        words[rng.integers(8)] = answer = f"w{1000 + rng.integers(3)}"
        row = {"question": f"w{50 + seed} w{100 + number}", "answers": [answer]}
        rows.append(row | {"passages": [" ".join(words)], "titles": [f"w{5 + number % 3}"]})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def config(small: Path, tmp_path: Path) -> WarmGeneratorConfig:
    reader = tmp_path / "reader"
    SpanReader.from_encoder(small).save(reader)
    (reader / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    files = {
        "questions": write_questions(tmp_path / "train.jsonl", 100, 0),
        "dev": write_questions(tmp_path / "dev.jsonl", 20, 1),
    }
    few: dict[str, Any] = {"steps": 6, "batch": 4, "save_every": 3, "eval_every": 3, "fitted": 50, "lr": 1e-3}
    return make_config(
        WarmGeneratorConfig, reader=reader, out=tmp_path / "run", max_answer=4, max_input=32, **files, **few
    )


def test_places_of_an_answer_are_inside_the_passage() -> None:
    ids = [2, 7, 8, 3, 7, 8, 9, 7, 8, 7, 3]
    assert find_places(ids, [7, 8], 0) == [1, 4, 7]
    assert find_places(ids, [7, 8], 4) == [4, 7]
    assert find_places(ids, [8, 7, 3], 0) == []  # the model needs a token after the answer
    assert find_places(ids, [9, 9], 0) == find_places(ids, [], 0) == []


def test_attention_on_any_place_of_an_answer_counts() -> None:
    """By hand: -log(0.1 + 0.3) and -log 0.2. An answer that is in no passage has no loss."""
    weights_BHTL = torch.zeros(2, 2, 2, 4)
    weights_BHTL[0, 0, 0] = torch.tensor([0.2, 0.1, 0.5, 0.2])
    weights_BHTL[0, 1, 0] = torch.tensor(
        [0.0, 0.1, 0.1, 0.8]
    )  # the mean of both heads is 0.1 at place 1 and 0.3 at place 2
    weights_BHTL[0, :, 1] = torch.tensor([0.7, 0.1, 0.1, 0.1])  # the mean is 0.1 at each of the places 2 and 3
    both = [Example([1, 2, 2, 3], [2, 3], [1, 2]), Example([1, 2, 2, 3], [5, 3], [])]
    expected = -(np.log(0.4) + np.log(0.2)) / 2
    assert compute_attention_nll(weights_BHTL, both).item() == pytest.approx(expected)
    assert compute_attention_nll(weights_BHTL[1:], both[1:]).item() == 0


def test_examples_have_the_question_first_and_the_places_of_the_answer(config: WarmGeneratorConfig) -> None:
    generator = warm_generator_loop.init_generator(config)
    tokens = generator.seq2seq.tokens
    golds = GoldQuestions([Question("w1 w20", ("w20",), passages=("w3 w20 w4 w20",), titles=("w20",))], Path("q"))
    (example,) = GoldBatch.sample(golds, [0], np.random.default_rng(0)).make_examples(generator, 4)
    assert tokens.tokenizer.convert_ids_to_tokens(example.ids) == (
        ["[CLS]", "w1", "w20", "[SEP]", "w20", "[UNK]", "w3", "w20", "w4", "w20", "[SEP]"]
    )
    assert example.places == [7, 9] and example.answer == [tokens.encode_bare("w20")[0], tokens.end]
    assert generator.template.text == "{question} [SEP] {title} / {passage}"


def test_an_answer_is_spelled_as_in_the_passage() -> None:
    """Byte-level BPE spells a word 7 alone and 17 after a space."""
    spelled_2T = torch.tensor([[7, 3, IGNORED], [17, 8, 3]])
    assert make_example([2, 5, 7, 3], spelled_2T, 1) == Example([2, 5, 7, 3], [7, 3], [2])
    assert make_example([2, 17, 8, 3], spelled_2T, 1) == Example([2, 17, 8, 3], [17, 8, 3], [1])
    assert make_example([2, 17, 8, 3], spelled_2T, 2) == Example([2, 17, 8, 3], [7, 3], [])


def test_an_answer_is_found_after_a_truncated_question(config: WarmGeneratorConfig) -> None:
    generator = warm_generator_loop.init_generator(config)
    question = " ".join(f"w{n}" for n in range(100, 150))
    golds = GoldQuestions([Question(question, ("w20",), passages=("w3 w20 w4",), titles=("w5",))], Path("q"))
    (made,) = GoldBatch.sample(golds, [0], np.random.default_rng(0)).make_examples(generator, 4)
    assert len(made.ids) <= config.max_input
    assert [made.ids[place] for place in made.places] == made.answer[:-1]


def test_a_generator_may_read_more_than_its_reader(config: WarmGeneratorConfig) -> None:
    """The limit of the reader's windows does not bind the generator."""
    reader = load_reader(config.reader)
    reader.config.reader_tokens = 16
    reader.save(config.reader)
    assert warm_generator_loop.init_generator(config).max_input == config.max_input == 32


def test_questions_without_a_passage_are_left_out(config: WarmGeneratorConfig) -> None:
    assert len(GoldQuestions([Question("q", ("a",)), Question("q", ("a",), passages=("a",))], Path("q"))) == 1
    with pytest.raises(BadInput, match=r"train\.jsonl: no question has an answer and a gold passage"):
        warm_generator_loop.main(
            replace_settings(config, questions=write_questions(config.questions, 0, 0, gold=False))
        )


def test_the_encoder_is_frozen_at_first_and_then_learns_at_a_tenth_of_the_rate() -> None:
    config = make_config(
        WarmGeneratorConfig, reader=Path("r"), questions=Path("q"), out=Path("o"), steps=40, lr=1e-3, warmup=2
    )
    assert config.frozen_steps == 10
    assert compute_rates(0, config) == [0, 0, 5e-4, 5e-4] and compute_rates(9, config)[0] == 0
    assert compute_rates(11, config)[:2] == [1e-4, 1e-4] and compute_rates(1, config)[2] == 1e-3


def test_other_recipes_can_start_from_the_generator(config: WarmGeneratorConfig) -> None:
    lines: list[str] = []
    out = warm_generator_loop.main(replace_settings(config, eval_every=6), notify=lines.append)
    assert out == config.out / "generator" and any("em" in line for line in lines)
    generator = load_generator(out)
    assert isinstance(generator, RagGenerator) and generator.kind == "rag-token" and generator.max_answer == 4
    writing = WritingConfig(generator=out)
    for kind in ("rag-sequence", "fid"):
        assert generator_training.load_for_training(kind, config, writing, 3).template == generator.template
    assert generator_training.load_for_training("closed-book", config, writing, 1).template.is_closed_book


def test_training_improves_attention_and_answers(config: WarmGeneratorConfig) -> None:
    more = replace_settings(config, steps=60, eval_every=60, batch=16, dropout=0.0, fitted=100, lr=3e-3)
    warm_generator_loop.main(more)
    rows = read_rows(more.out)
    first, *_, last = (row["guided"] for row in rows if "guided" in row)
    assert first < 1.5  # even attention over some 14 places would give log 14 = 2.6
    assert last < first and [row["em"] for row in rows if "em" in row][-1] > 0.8


def test_a_killed_run_takes_the_same_steps(config: WarmGeneratorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    whole = warm_generator_loop.main(config)
    again = replace_settings(config, out=config.out.with_name("again"))
    interrupt(warm_generator_loop.main, again, 4)
    broken = warm_generator_loop.main(again)
    one, other = (load_file(path / "model.safetensors") for path in (whole, broken))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guide": -1.0}, "guide: 0 or more"),
        ({"encoder_lr": float("inf")}, "encoder_lr: 0 or more"),
        ({"decoder_layers": 0}, "decoder_layers: above 0"),
        ({"fitted": 0}, "fitted: above 0"),
        ({"template": "{question}"}, "template: with {passage}"),
        ({"template": "{passage}"}, "use {question} once"),
    ],
)
def test_settings_out_of_range_are_refused(config: WarmGeneratorConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace_settings(config, **changes)


def test_a_folder_without_a_reader_is_refused(config: WarmGeneratorConfig, small: Path) -> None:
    with pytest.raises(ArtefactError, match="is not a reader"):
        warm_generator_loop.main(replace_settings(config, reader=small))
    (config.reader / "tokenizer.json").unlink()
    with pytest.raises(ArtefactError, match=r"has no tokenizer\.json"):
        warm_generator_loop.main(config)
