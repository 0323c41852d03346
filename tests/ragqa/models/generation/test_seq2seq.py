"""Seq2seq models of all families agree with transformers, and wrong inputs are reported."""

import json
import pickle
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    LEDConfig,
    RagConfig,
    RagRetriever,
    RagTokenForGeneration,
)

from ragqa.errors import ArtefactError, BadInput
from ragqa.models.generation import seq2seq
from ragqa.models.generation.encoder_decoder import make_from_encoder
from ragqa.models.generation.generators import load_rag
from ragqa.models.generation.seq2seq import DecoderRun, Seq2Seq
from ragqa.models.generation.template import CLOSED_BOOK, FID, RAG, PairEncoder, Template
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs
from ragqa.models.pretrained import SEQ2SEQS, load_encoder_module, load_masked_lm, make_masked_lm, set_dropout
from ragqa.objectives import IGNORED
from tests.helpers.generators import (
    FAMILIES,
    bart_tokenizer,
    passage,
    tiny_bart,
    tiny_t5,
    wordless,
    write_bart,
    write_byt5,
    write_rag,
)
from tests.helpers.seq2seq import write_shape


def test_every_supported_family_is_tested() -> None:
    assert set(SEQ2SEQS) == set(FAMILIES)


def make_texts(pad: int) -> Inputs:
    torch.manual_seed(1)
    mask = torch.arange(9) < torch.tensor([5, 9, 3, 7])[:, None]
    return Inputs(torch.randint(5, 60, (4, 9)).masked_fill(~mask, pad), mask.long())


@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces a better way to train encoder-decoder models")
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_agree_with_transformers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(seq2seq._MIN_SAVING, "cpu", 1)  # encode every length separately
    theirs, model = FAMILIES[family](), Seq2Seq(FAMILIES[family](), wordless())
    inputs = make_texts(theirs.config.pad_token_id)
    labels = torch.randint(5, 60, (4, 6))
    labels[1, 4:] = -100
    chosen = labels != -100
    expected = theirs(input_ids=inputs.ids_NL, attention_mask=inputs.mask_NL, labels=labels).logits[chosen]
    found_logits = model.compute_logits(model.encode(inputs), model.shift_labels(labels), chosen)
    assert torch.allclose(found_logits, expected, atol=1e-4)
    for logits in (expected, found_logits):
        torch.nn.functional.cross_entropy(logits, labels[chosen]).backward()
    for one, other in zip(theirs.parameters(), model.model.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.allclose(one.grad, other.grad, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_token_by_token_gives_the_same_logits(family: str) -> None:
    """Two rows read each text; rows are reordered and texts dropped on the way."""
    model = Seq2Seq(FAMILIES[family](), wordless())
    with torch.no_grad():
        states = model.encode(make_texts(model.conventions.pad))
        said = torch.randint(5, 60, (8, 4))
        whole = model.compute_logits(states, said)
        run = DecoderRun(model, states)
        first = run.step(said[:, 0])
        swapped = torch.tensor([1, 0, 2, 3, 4, 4, 6, 7])
        run.reorder(swapped)
        second = run.step(said[swapped][:, 1])
        remaining_rows = torch.tensor([1, 2])
        run = run.select(remaining_rows, torch.tensor([2, 3, 4, 5]))
        third = run.step(said[swapped][2:6, 2])
        scored = (
            DecoderRun(model, states[remaining_rows])
            .score(said[swapped][2:6, :3], torch.ones(4, 3, dtype=torch.bool))
            .view(4, 3, -1)
        )
    assert torch.allclose(first, whole[:, 0], atol=1e-4)
    assert torch.allclose(second, whole[swapped, 1], atol=1e-4)
    assert torch.allclose(third, whole[swapped][2:6, 2], atol=1e-4)
    assert torch.allclose(scored, whole[swapped][2:6, :3], atol=1e-4)


def test_keys_of_a_text_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Seq2Seq(tiny_bart(), wordless())
    calls: list[int] = []
    for layer in model.model.model.decoder.layers:
        layer.encoder_attn.k_proj.register_forward_hook(lambda _, given, __: calls.append(given[0].shape[0]))
    with torch.no_grad():
        run = DecoderRun(model, model.encode(make_texts(1)))
        for _ in range(3):
            run.step(torch.full((12,), 5))
        run.score(torch.full((20, 2), 5), torch.ones(20, 2, dtype=torch.bool))
    assert calls == [4, 4]


@pytest.mark.parametrize("write", [write_bart, write_byt5])
def test_transformers_loads_saved_models(write: Any, tmp_path: Path) -> None:
    model = Seq2Seq.load(write(tmp_path / "given")).eval()
    model.save(tmp_path / "saved")
    again, theirs = Seq2Seq.load(tmp_path / "saved").eval(), AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved")
    assert again.conventions == model.conventions
    inputs = model.tokens.pad_rows(model.tokens.encode(["who wrote it", "in 1008"]))
    labels = model.tokens.make_labels(["a lady", "x"], 8)
    with torch.no_grad():
        logits = [each.compute_logits(each.encode(inputs), each.shift_labels(labels)) for each in (model, again)]
        own = theirs.eval()(input_ids=inputs.ids_NL, attention_mask=inputs.mask_NL, labels=labels).logits
    assert torch.equal(*logits) and torch.allclose(own, logits[0], atol=1e-4)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_weights_stored_in_half_precision_are_loaded_as_float32(
    precision: torch.dtype, small: Path, tmp_path: Path
) -> None:
    AutoModelForMaskedLM.from_pretrained(small).to(precision).save_pretrained(tmp_path / "bert")
    shutil.copyfile(small / "tokenizer.json", tmp_path / "bert" / "tokenizer.json")
    model = AutoModelForSeq2SeqLM.from_pretrained(write_bart(tmp_path / "bart")).to(precision)
    model.save_pretrained(tmp_path / "bart")
    rag = write_rag(tmp_path / "rag", RagTokenForGeneration).to(precision)
    rag.save_pretrained(tmp_path / "rag")
    published = load_rag(tmp_path / "rag")
    for module in (
        load_encoder_module(tmp_path / "bert"),
        load_masked_lm(tmp_path / "bert"),
        make_masked_lm(tmp_path / "bert"),
        make_from_encoder(tmp_path / "bert"),
        Seq2Seq.load(tmp_path / "bart"),
        Seq2Seq.load(tmp_path / "bart", fresh=True),
        published.generator,
        published.questions,
    ):
        assert {each.dtype for each in module.parameters()} == {torch.float32}, type(module)
    assert torch.equal(Seq2Seq.load(tmp_path / "bart").model.lm_head.weight, model.lm_head.weight.float())


def test_labels_agree_with_transformers(tmp_path: Path, small: Path) -> None:
    bart, byt5 = Seq2Seq.load(write_bart(tmp_path / "bart")), Seq2Seq.load(write_byt5(tmp_path / "t5"))
    labels = bart.tokens.make_labels(["a", "tale"], 9)
    a = bart.tokens.encode_bare("a")[0]
    assert labels[0].tolist()[:4] == [0, a, 2, *([-100] if labels.shape[1] > 3 else [])][:4]
    assert bart.shift_labels(labels)[0].tolist()[:3] == [2, 0, a]
    assert byt5.tokens.make_labels(["abc", "z"], 9).tolist() == [[100, 101, 102, 1], [125, 1, -100, -100]]
    assert byt5.shift_labels(byt5.tokens.make_labels(["abc"], 9)).tolist() == [[0, 100, 101, 102]]
    assert byt5.tokens.make_labels(["abcdef"], 3).tolist() == [[100, 101, 1]]  # a cut text also has its end
    bert = make_from_encoder(small)
    assert bert.tokens.make_labels(["w1 w2"], 9).tolist() == [[6, 7, 3]]
    assert bert.shift_labels(torch.tensor([[6, 7, 3]])).tolist() == [[2, 6, 7]]


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """transformers would make one of sentinels only, for which every word is unknown."""
    path = write_shape("t5", tmp_path / "t5")
    (path / "tokenizer.json").unlink()
    with pytest.raises(ArtefactError, match="t5 has no tokenizer files"):
        Seq2SeqTokenizer.load(path)


def test_an_encoder_becomes_an_encoder_decoder(small: Path, tmp_path: Path) -> None:
    model = make_from_encoder(small, decoder_layers=1)
    encoder, decoder = model.model.encoder, model.model.decoder.bert
    assert len(decoder.encoder.layer) == 1 and len(encoder.encoder.layer) == 2
    own, copied = encoder.encoder.layer[0].state_dict(), decoder.encoder.layer[0].state_dict()
    assert all(torch.equal(value, copied[name]) for name, value in own.items())
    assert {name.split(".")[0] for name in copied.keys() - own.keys()} == {"crossattention"}
    assert model.tokens.encode(["w1 w2"]) == [[2, 6, 7, 3]] and model.tokens.decode([6, 7, 3]) == "w1 w2"
    model.save(tmp_path)
    again = Seq2Seq.load(tmp_path)
    assert again.conventions == model.conventions and again.tokens.encode(["w1"]) == [[2, 6, 3]]
    assert all(torch.equal(value, again.model.state_dict()[name]) for name, value in model.model.state_dict().items())


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_encoders_of_other_families_become_decoders(family: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = AutoConfig.for_model(family, vocab_size=300, max_position_embeddings=66, pad_token_id=1, **sizes)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    bart_tokenizer().save_pretrained(tmp_path)
    model = make_from_encoder(tmp_path).eval()
    inputs, labels = (
        model.tokens.pad_rows(model.tokens.encode(["who wrote it", "in"])),
        model.tokens.make_labels(["a lady"] * 2, 9),
    )
    said = model.shift_labels(labels)
    given = {"input_ids": inputs.ids_NL, "attention_mask": inputs.mask_NL, "decoder_input_ids": said}
    with torch.no_grad():
        run = DecoderRun(model, model.encode(inputs))
        steps = torch.stack([run.step(said[:, t]) for t in range(said.shape[1])], 1)
        assert torch.allclose(steps, model.model(**given).logits, atol=1e-4)


def test_dropout_can_be_disabled_in_every_family() -> None:
    """BART and T5 keep some dropout shares as numbers and not as modules."""
    for make in FAMILIES.values():
        model = make()
        for part in model.modules():
            if isinstance(getattr(part, "dropout", None), float):
                part.dropout = 0.9
        set_dropout(model.train(), 0.0)
        ids = torch.full((2, 5), 7)
        torch.testing.assert_close(*[model(input_ids=ids, decoder_input_ids=ids).logits for _ in range(2)])


def test_forced_tokens_of_a_configuration_are_followed(tmp_path: Path) -> None:
    """Old checkpoints have them in config.json and not in a generation config."""
    path = write_bart(tmp_path)
    (path / "generation_config.json").unlink()
    row = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(row | {"forced_bos_token_id": 0}))
    assert Seq2Seq.load(path).conventions.forced_first == 0


def test_models_that_cannot_be_loaded_are_reported_in_one_line(tmp_path: Path, small: Path) -> None:
    with pytest.raises(ArtefactError, match="is a bert, not one of the supported seq2seqs: bart, blenderbot,"):
        Seq2Seq.load(small)
    with pytest.raises(ArtefactError, match="is not a seq2seq that can be loaded"):
        Seq2Seq.load(tmp_path)
    with pytest.raises(ArtefactError, match="no decoder can be made from a distilbert"):
        make_from_encoder(write_distilbert(tmp_path / "distilbert", small))
    path = write_bart(tmp_path / "bart")
    shutil.copytree(path, tmp_path / "weightless")
    (tmp_path / "weightless" / "model.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"is not a seq2seq that can be loaded: .*no file named"):
        Seq2Seq.load(tmp_path / "weightless")
    for name, junk in (("junk", b"junk"), ("pickled", pickle.dumps({"a": Path()}))):
        broken = shutil.copytree(tmp_path / "weightless", tmp_path / name)
        (broken / "pytorch_model.bin").write_bytes(junk)
        with pytest.raises(ArtefactError, match=f"{name} is not a seq2seq that can be loaded: ") as error:
            Seq2Seq.load(broken)
        assert "\n" not in str(error.value)
    LEDConfig(vocab_size=60, d_model=8).save_pretrained(tmp_path / "led")
    with pytest.raises(ArtefactError, match="led is a led, not one of the supported seq2seqs"):
        Seq2Seq.load(tmp_path / "led")
    deeper = tmp_path / "deeper"
    shutil.copytree(path, deeper)
    row = json.loads((deeper / "config.json").read_text())
    (deeper / "config.json").write_text(json.dumps(row | {"decoder_layers": 3}))
    with pytest.raises(ArtefactError, match=r"lacks \d+ weights of its seq2seq, for example model.decoder.layers.2"):
        Seq2Seq.load(deeper)
    for file in path.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ArtefactError, match="bart has no tokenizer files"):
        Seq2Seq.load(path)


def write_distilbert(path: Path, small: Path) -> Path:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=1105, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    DistilBertModel(config).save_pretrained(path)
    shutil.copyfile(small / "tokenizer.json", path / "tokenizer.json")
    return path


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(ArtefactError, match="has 300 pieces, the model 60 embeddings: it belongs to another model"):
        Seq2Seq(tiny_bart(60), Seq2SeqTokenizer(bart_tokenizer()))
    with pytest.raises(ArtefactError, match="pads with 1 and ends with 2, the model with 0 and 1"):
        Seq2Seq(tiny_t5(300), Seq2SeqTokenizer(bart_tokenizer()))
    for rows, fits in ((427, True), (428, False), (299, False)):  # T5 has 28 embeddings more than pieces
        with nullcontext() if fits else pytest.raises(ArtefactError, match=f"has 300 pieces, the model {rows} embeddi"):
            Seq2Seq(tiny_bart(rows), Seq2SeqTokenizer(bart_tokenizer()))


def test_pairs_have_the_form_of_rag() -> None:
    tokenizer = bart_tokenizer()
    found = [passage('"Genji"', "a  novel of the court"), passage("Heian", "the court")]
    texts = {"title": [each.title for each in found], "text": [each.text for each in found]}
    retriever = SimpleNamespace(config=RagConfig(max_combined_length=80), generator_tokenizer=tokenizer)
    expected, _ = RagRetriever.postprocess_docs(retriever, [texts], ["who wrote it"], None, 2, return_tensors="pt")
    inputs = PairEncoder(Seq2SeqTokenizer(tokenizer), RAG, 80).encode(["who wrote it"], [found])
    assert torch.equal(inputs.ids_NL, expected[:, : inputs.ids_NL.shape[1]])
    assert torch.all(expected[:, inputs.ids_NL.shape[1] :] == 1)


@pytest.mark.parametrize("template", [RAG, FID])
@pytest.mark.parametrize("kind", ["bart", "byt5"])
def test_long_pairs_lose_the_end_of_the_passage(template: Template, kind: str, tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    tokens = Seq2SeqTokenizer(bart_tokenizer() if kind == "bart" else ByT5Tokenizer())
    found = passage("Genji", "the tale of the court " * 20)
    whole = PairEncoder(tokens, template, 10_000).encode(["who wrote it?"], [[found]]).ids_NL[0].tolist()
    cut = PairEncoder(tokens, template, 90).encode(["who wrote it?"], [[found]]).ids_NL[0].tolist()
    assert len(cut) == 90 and cut[-1] == whole[-1] == tokens.end
    text = tokens.decode(cut)
    assert "who wrote it?" in text and "Genji" in text and "the tale of" in text


@pytest.mark.parametrize("question", ["who wrote it?", "who wrote it? " * 40])
@pytest.mark.parametrize("template", [RAG, FID])
def test_a_generator_tells_how_much_of_a_passage_it_can_read(template: Template, question: str) -> None:
    tokens, found = Seq2SeqTokenizer(bart_tokenizer()), passage("Genji", "".join(f"{n:03} " for n in range(100)))
    text = tokens.decode(PairEncoder(tokens, template, 120).encode([question], [[found]]).ids_NL[0].tolist())
    ends = [found.text.index(f"{n:03}") + 3 for n in range(100)]
    said = [f"{n:03}" in text for n in range(100)]
    assert True in said and False in said
    assert [PairEncoder(tokens, template, 120).can_read(question, found, end) for end in ends] == said


@pytest.mark.parametrize("template", [RAG, FID, CLOSED_BOOK])
@pytest.mark.parametrize("kind", ["bart", "byt5"])
def test_long_questions_are_cut_and_leave_room_for_the_passage(template: Template, kind: str) -> None:
    """Half of the room that the template leaves is for the passage, unless there is none."""
    from transformers import ByT5Tokenizer

    tokens = Seq2SeqTokenizer(bart_tokenizer() if kind == "bart" else ByT5Tokenizer())
    asked, found = ["who wrote it?", "when was it that " * 20], passage("Genji", "the tale of the court " * 20)
    rows = PairEncoder(tokens, template, 90).encode(asked, [[found], [found]]).ids_NL
    alone = PairEncoder(tokens, template, 90).encode(asked[:1], [[found]]).ids_NL
    assert rows[0, : alone.shape[1]].tolist() == alone[0].tolist()
    assert 80 <= rows.shape[1] <= 90 and tokens.end in rows[1].tolist()
    text, around = tokens.decode(rows[1].tolist()), len(tokens.encode([template.fill("")])[0])
    room = 90 - around if template.is_closed_book else (90 - around) // 2
    said = max(end for end in range(len(asked[1])) if asked[1][:end] in text)  # of the question
    assert room - 3 <= len(tokens.encode_bare(asked[1][:said])) <= room + 3
    assert ("the tale" in text) == (not template.is_closed_book)
    with pytest.raises(BadInput, match="alone is longer than the 0 tokens of the input"):
        PairEncoder(tokens, template, 0).encode(asked, [[found], [found]])


def test_missing_passages_are_replaced_by_empty_ones() -> None:
    tokens = Seq2SeqTokenizer(bart_tokenizer())
    inputs = PairEncoder(tokens, RAG, 50).encode(
        ["a", "b"], [[passage("t", "x"), passage("t", "y")], [passage("t", "z")]]
    )
    assert [tokens.decode(row) for row in inputs.ids_NL.tolist()] == [
        "t / x // a",
        "t / y // a",
        "t / z // b",
        "/ // b",
    ]
    alone = PairEncoder(tokens, CLOSED_BOOK, 50).encode(["a", "b"], [[passage("t", "x")], []])
    assert [tokens.decode(row) for row in alone.ids_NL.tolist()] == ["a", "b"]
    assert PairEncoder(tokens, Template("nq: {question}"), 50).encode(["{title}"], [[]]).ids_NL.shape[0] == 1
    with pytest.raises(BadInput, match=r"use \{question\} once and \{passage\} at most once"):
        Template("{passage}")


@pytest.mark.parametrize("kind", ["t5", "bart", "bert"])
def test_labels_get_the_models_end_if_the_tokenizer_adds_none(kind: str, tmp_path: Path) -> None:
    """A tokenizer.json without post-processor neither ends a text nor names special tokens."""
    for name, changed in (("bare", {"post_processor": None}), ("whole", {})):
        file = write_shape(kind, tmp_path / name) / "tokenizer.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    bare, whole = (Seq2Seq.load(tmp_path / name, fresh=True) for name in ("bare", "whole"))
    end = bare.conventions.ends[0]
    labels = bare.tokens.make_labels(["W1 W2 W3", "W4", ""], 3)
    pieces = [bare.tokens.encode_bare(text) for text in ("W1 W2", "W4", "")]
    rows = [[each for each in row if each != IGNORED] for row in labels.tolist()]
    assert rows == [[*row, end] for row in pieces]
    if kind != "bart":  # whose labels begin with <s>
        assert torch.equal(labels, whole.tokens.make_labels(["W1 W2 W3", "W4", ""], 3))
    rules = bare.conventions
    assert bare.tokens.decode([rules.start, *pieces[0], end, rules.pad]) == "W1 W2"
