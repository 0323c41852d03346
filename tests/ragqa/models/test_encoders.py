"""Towers, masked language models and attention functions compute, save and load the same results."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import WORDS
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, GPT2Config

from ragqa.errors import ArtefactError, Mismatch
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation.generators import load_rag
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.pretrained import (
    compile_encoders,
    get_max_input,
    get_max_sequence,
    load_config,
    load_encoder_module,
    load_seq2seq_module,
)
from ragqa.models.span_readers import MlpSpanReader
from ragqa.models.tower import Tower
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.export import export
from ragqa.runtime.scorer import load_scorer
from ragqa.runtime.tokens import TokenInput
from tests.helpers.models import FAMILIES, make_tiny_config
from tests.helpers.seq2seq import write_shape

IDS = torch.tensor([[2, 10, 11, 3], [2, 12, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "cls", "width": 8},
        {"pooling": "cls", "width": None},
        {"pooling": "mean", "width": None, "unit_length": True},
    ],
    ids=["ORQA", "DPR", "sentences"],
)
def test_a_saved_tower_computes_the_same_vectors(small: Path, tmp_path: Path, options: dict) -> None:
    torch.manual_seed(1)
    tower = Tower.from_encoder(small, **options).eval()
    tower.save(tmp_path)
    again = Tower.load(tmp_path).eval()
    assert torch.equal(tower(IDS, MASK), again(IDS, MASK))
    assert (again.pooling, again.unit_length, again.width) == (tower.pooling, tower.unit_length, tower.width)
    assert not any(path.suffix in (".bin", ".pt", ".pkl") for path in tmp_path.rglob("*"))


def test_tower_vectors_agree_with_hand_computation(small: Path) -> None:
    """Project [CLS] and normalise it over its values."""
    tower = Tower.from_encoder(small, width=8).eval()
    with torch.no_grad():
        hidden = tower.encoder(input_ids=IDS, attention_mask=MASK).last_hidden_state[:, 0]
        raw = hidden @ tower.project.weight.T + tower.project.bias
        by_hand = (raw - raw.mean(-1, keepdim=True)) / torch.sqrt(raw.var(-1, keepdim=True, unbiased=False) + 1e-5)
        assert torch.allclose(tower(IDS, MASK), by_hand, atol=1e-5)


def test_padding_changes_no_vector(small: Path) -> None:
    for pooling in ("cls", "mean"):
        tower = Tower.from_encoder(small, pooling=pooling).eval()
        with torch.no_grad():
            assert torch.allclose(tower(IDS, MASK)[1], tower(IDS[1:, :3], MASK[1:, :3])[0], atol=1e-6)


def test_unknown_modules_are_named(small: Path, tmp_path: Path) -> None:
    Tower.from_encoder(small, width=8).save(tmp_path)
    rows = json.loads((tmp_path / "modules.json").read_text())
    rows.append({"idx": 4, "name": "4", "path": "4_CNN", "type": "sentence_transformers.models.CNN"})
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(ArtefactError, match="has the unknown module CNN"):
        Tower.load(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps(rows[:4]))
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps({"out_features": 8, "activation_function": "Tanh"}))
    with pytest.raises(ArtefactError, match="has the activation Tanh"):
        Tower.load(tmp_path)


def make_dual_encoder(small: Path, *, shared: bool, width: int = 8) -> DualEncoder:
    torch.manual_seed(2)
    retriever = DualEncoder.from_encoder(small, width=width, shared=shared)
    if not shared:
        with torch.no_grad():
            retriever.questions.project.weight.add_(torch.randn_like(retriever.questions.project.weight))
    return retriever.eval()


@pytest.mark.parametrize("shared", [True, False])
def test_the_runtime_loads_saved_dual_encoders(small: Path, tmp_path: Path, shared: bool) -> None:
    retriever = make_dual_encoder(small, shared=shared)
    retriever.save(tmp_path / "dual")
    encoder = load_encoder(tmp_path / "dual")
    ids = [encoder._tokenizer.encode_text(text, 512).ids for text in TEXTS]
    with torch.no_grad():
        for tower, encode in ((retriever.questions, encoder.encode_questions), (retriever.passages, encoder.encode)):
            alone = [tower(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.long))[0] for row in ids]
            assert np.allclose(encode(TEXTS), torch.stack(alone), atol=1e-5)
    assert np.allclose(encoder.encode(TEXTS), encoder.encode_questions(TEXTS)) == shared
    again = DualEncoder.load(tmp_path / "dual")
    assert again.is_shared == shared
    for name, value in retriever.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


@pytest.mark.parametrize("shared", [True, False])
def test_limit_tokens_cuts_questions_and_passages(small: Path, tmp_path: Path, shared: bool) -> None:
    """Words after the 6th of a question and the 10th of a passage change nothing; [CLS] and [SEP] count."""
    towers = DualEncoder.from_encoder(small, width=8, shared=shared)
    towers.limit_tokens(8, 12)
    towers.save(tmp_path / "cut")
    encoder, words = load_encoder(tmp_path / "cut"), [f"w{number}" for number in range(20)]
    question_words, passage_words = 10 if shared else 6, 10
    for encode, count in ((encoder.encode_questions, question_words), (encoder.encode, passage_words)):
        whole, cut, shorter = encode([" ".join(words), " ".join(words[:count]), " ".join(words[: count - 1])])
        assert np.array_equal(whole, cut) and not np.allclose(cut, shorter)


def test_two_towers_start_with_equal_weights(small: Path) -> None:
    retriever = DualEncoder.from_encoder(small, width=8).eval()
    assert torch.equal(retriever.questions(IDS, MASK), retriever.passages(IDS, MASK))
    assert retriever.questions is not retriever.passages


def test_the_fingerprint_depends_on_both_towers(small: Path, tmp_path: Path) -> None:
    retriever = make_dual_encoder(small, shared=False)
    retriever.save(tmp_path / "a")
    with torch.no_grad():
        retriever.questions.norm.bias.add_(1)
    retriever.save(tmp_path / "b")
    one, other = load_encoder(tmp_path / "a"), load_encoder(tmp_path / "b")
    assert one.fingerprint != other.fingerprint
    assert np.array_equal(one.encode(TEXTS), other.encode(TEXTS))


def test_towers_of_different_widths_are_refused(small: Path, tmp_path: Path) -> None:
    make_dual_encoder(small, shared=False).save(tmp_path / "a")
    make_dual_encoder(small, shared=False, width=4).save(tmp_path / "b")
    (tmp_path / "a" / "questions").rename(tmp_path / "gone")
    (tmp_path / "b" / "questions").rename(tmp_path / "a" / "questions")
    with pytest.raises(Mismatch, match="width 4 and 8"):
        load_encoder(tmp_path / "a")


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_an_exported_dual_encoder_retrieves_the_same_passages(small: Path, tmp_path: Path, shared: bool) -> None:
    make_dual_encoder(small, shared=shared).save(tmp_path / "dual")
    export(tmp_path / "dual", tmp_path / "onnx")
    full, quantised = load_encoder(tmp_path / "dual"), load_encoder(tmp_path / "onnx")
    assert (quantised.precision, quantised.fingerprint) == ("int8", full.fingerprint)
    for one, other in ((full.encode, quantised.encode), (full.encode_questions, quantised.encode_questions)):
        a, b = one(TEXTS), other(TEXTS)
        assert ((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1) > 0.98).all()
    assert np.allclose(quantised.encode(TEXTS), quantised.encode_questions(TEXTS)) == shared


@pytest.fixture(scope="module")
def masked_model(small: Path) -> KnowledgeAugmentedEncoder:
    torch.manual_seed(3)
    return KnowledgeAugmentedEncoder.from_config(small).eval()


def test_logits_are_computed_at_the_given_positions_only(masked_model: KnowledgeAugmentedEncoder) -> None:
    types, positions = torch.zeros_like(IDS), torch.tensor([[1, 2], [1, 1]])
    with torch.no_grad():
        whole = masked_model.model(input_ids=IDS, attention_mask=MASK, token_type_ids=types).logits
        some = masked_model(IDS, MASK, types, positions)
        wanted = torch.stack([whole[n, positions[n]] for n in range(2)])
    assert torch.allclose(some, wanted, atol=1e-5)


def test_unusable_configurations_and_tokenizers_are_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="t5 does not describe a masked language model"):
        KnowledgeAugmentedEncoder.from_config(write_shape("t5", tmp_path / "t5"))
    with pytest.raises(ArtefactError, match="nowhere: no such directory"):
        KnowledgeAugmentedEncoder.from_config(tmp_path / "nowhere")
    shape = tmp_path / "shape"
    shape.mkdir()
    row = json.loads((small / "config.json").read_text()) | {"vocab_size": len(WORDS) - 1}
    (shape / "config.json").write_text(json.dumps(row))
    shutil.copyfile(small / "tokenizer.json", shape / "tokenizer.json")
    message = f"has {len(WORDS)} pieces, but the model has {len(WORDS) - 1} embeddings"
    with pytest.raises(Mismatch, match=message):
        KnowledgeAugmentedEncoder.from_config(shape)
    with pytest.raises(Mismatch, match=message):
        DualEncoder(Tower(AutoModel.from_config(AutoConfig.from_pretrained(shape))), tokenizer=shape / "tokenizer.json")


@pytest.mark.thorough
def test_compiled_encoders_compute_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compare losses, gradients and saved weights; compiled without inductor, which needs a C++ compiler."""
    compiled: list[str] = []

    def trace(forward: Any, **options: Any) -> Any:
        compiled.append(type(forward.__self__).__name__)
        return COMPILE(forward, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", trace)
    torch.manual_seed(0)
    config = make_tiny_config("modernbert")
    model = KnowledgeAugmentedEncoder(AutoModelForMaskedLM.from_config(config, attn_implementation="eager")).eval()
    tower = Tower(AutoModel.from_config(config, attn_implementation="eager"), pooling="mean", width=4).eval()
    both = nn.ModuleList([model, tower])

    def compute_gradients(length: int) -> tuple[Tensor, list[Tensor]]:
        ids = torch.arange(2 * length).reshape(2, length) % 40 + 5
        logits = model(ids, torch.ones_like(ids), torch.zeros_like(ids), torch.tensor([[1, 2], [1, 1]]))
        loss = logits.square().mean() + tower(ids, torch.ones_like(ids)).square().mean()
        loss.backward()
        grads = [p.grad for p in both.parameters() if p.grad is not None]
        both.zero_grad(set_to_none=True)
        return loss.detach(), grads

    before, names = [compute_gradients(length) for length in (9, 12)], list(both.state_dict())
    compile_encoders(both)
    for (loss, grads), length in zip(before, (9, 12), strict=True):
        again, others = compute_gradients(length)
        assert torch.allclose(again, loss)
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(others, grads, strict=True))
    assert len(compiled) == 2 and list(both.state_dict()) == names  # each encoder is compiled once, the heads are not
    model.save(tmp_path)
    assert len(load_file(tmp_path / "model.safetensors")) > 0


def test_generators_are_not_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(torch, "compile", refuse)
    for kind in ("bart", "t5"):
        compile_encoders(load_seq2seq_module(write_shape(kind, tmp_path / kind), fresh=True))


COMPILE = torch.compile


@pytest.mark.parametrize("family", FAMILIES)
def test_any_masked_language_model_works(family: str) -> None:
    model = KnowledgeAugmentedEncoder(AutoModelForMaskedLM.from_config(make_tiny_config(family))).eval()
    types, positions = torch.zeros_like(IDS), torch.tensor([[2], [1]])
    with torch.no_grad():
        whole = model.model(input_ids=IDS, attention_mask=MASK).logits
        some = model(IDS, MASK, types, positions)
    assert torch.allclose(some[:, 0], whole[torch.arange(2), positions[:, 0]], atol=1e-5)


def test_families_whose_positions_start_after_padding_have_fewer_positions() -> None:
    found = {family: get_max_sequence(make_tiny_config(family)) for family in FAMILIES}
    assert found == {**dict.fromkeys(FAMILIES, 40), "roberta": 39}
    assert get_max_sequence(AutoConfig.for_model("roberta", max_position_embeddings=514)) == 512
    towers = AutoConfig.for_model("bert", tower_tokens=64, reader_tokens=80)
    assert (get_max_sequence(towers), get_max_input(towers), get_max_input(towers, "tower_tokens")) == (
        512,
        80,
        64,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES[2:])
def test_any_encoder_can_be_a_retriever_and_a_reader(family: str, small: Path, tmp_path: Path) -> None:
    """Train, export, and answer questions with the export."""
    torch.manual_seed(2)
    encoder = tmp_path / "encoder"
    AutoModel.from_config(make_tiny_config(family, vocabulary=len(WORDS))).save_pretrained(encoder)
    shutil.copy(small / "tokenizer.json", encoder)
    dual_encoder = DualEncoder.from_encoder(encoder, width=8, pooling="mean")
    dual_encoder.save(tmp_path / "dual")
    reader = MlpSpanReader.from_encoder(encoder, hidden=16, max_span=4)
    with torch.no_grad():
        reader.project.weight.normal_(std=0.3)
        reader.score.weight.normal_(std=0.3)
    reader.save(tmp_path / "reader")
    shutil.copy(small / "tokenizer.json", tmp_path / "reader")
    for source in ("dual", "reader"):
        export(tmp_path / source, tmp_path / "onnx" / source)
    full, quantised = (load_encoder(path / "dual").encode(TEXTS) for path in (tmp_path, tmp_path / "onnx"))
    assert (
        (full * quantised).sum(-1) / np.linalg.norm(full, axis=-1) / np.linalg.norm(quantised, axis=-1) > 0.98
    ).all()
    items = [TokenInput([2, 10, 11, 3, 20, 21, 22, 3], 4), TokenInput([2, 10, 3, 30, 31, 3], 3)]
    scores = [load_scorer(path / "reader").score(items) for path in (tmp_path, tmp_path / "onnx")]
    for one, other in zip(*scores, strict=True):
        inside = np.arange(len(one.spans))[:, None] + np.arange(4) < len(one.spans)
        assert np.corrcoef(one.spans[inside], other.spans[inside])[0, 1] > 0.95


def test_a_masked_language_model_is_saved_with_its_tokenizer(
    masked_model: KnowledgeAugmentedEncoder, tmp_path: Path
) -> None:
    masked_model.save(tmp_path)
    again = KnowledgeAugmentedEncoder.load(tmp_path).eval()
    types, positions = torch.zeros_like(IDS), torch.tensor([[1], [1]])
    with torch.no_grad():
        assert torch.equal(again(IDS, MASK, types, positions), masked_model(IDS, MASK, types, positions))
    assert (tmp_path / "tokenizer.json").is_file()
    tower = Tower.from_encoder(tmp_path, width=4)  # a tower can start from this encoder
    assert torch.equal(
        tower.encoder.embeddings.word_embeddings.weight, masked_model.model.get_input_embeddings().weight
    )


def test_models_can_be_saved_into_their_own_directory(
    small: Path, masked_model: KnowledgeAugmentedEncoder, tmp_path: Path
) -> None:
    for kind, model in (
        (DualEncoder, make_dual_encoder(small, shared=False)),
        (KnowledgeAugmentedEncoder, masked_model),
    ):
        folder = tmp_path / kind.__name__
        model.save(folder)
        kind.load(folder).save(folder)
        again = kind.load(folder).state_dict()
        assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_decoders_and_causal_models_are_no_encoders(tmp_path: Path) -> None:
    for family in ("bart", "t5"):
        with pytest.raises(ArtefactError, match=f"is a {family}, not an encoder: use a model like BERT or RoBERTa"):
            DualEncoder.load(write_shape(family, tmp_path / family))
    GPT2Config(vocab_size=90, n_embd=16, n_layer=1, n_head=2).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ArtefactError, match="is a gpt2, not an encoder"):
        Tower.load(tmp_path / "gpt2")


@pytest.mark.parametrize("name", [Path("owner/model"), "./model", "/model", "a/b/c", "~/model", "a b"], ids=str)
def test_names_that_cannot_be_on_the_hub_are_not_looked_up(name: str | Path) -> None:
    for load in (load_seq2seq_module, load_encoder_module, load_rag):
        with pytest.raises(ArtefactError, match=r"no such directory$"):
            load(name)


def test_a_file_is_not_looked_up_at_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("not a model")
    with pytest.raises(ArtefactError, match=r"^notes\.txt: no such directory$"):
        load_seq2seq_module("notes.txt")


def test_damaged_weights_are_reported_in_one_line(small: Path, tmp_path: Path) -> None:
    Tower.from_encoder(small, width=8).save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ArtefactError, match="is not an encoder that can be loaded"):
        Tower.load(tmp_path)


def test_code_that_a_model_brings_along_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default transformers asks on the terminal whether to run the code."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\n")
    row = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(row))
    with pytest.raises(ArtefactError, match="is not a model that can be loaded"):
        load_config(tmp_path)
    assert not (tmp_path / "ran").exists()
