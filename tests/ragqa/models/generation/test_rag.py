"""RAG and Fusion-in-Decoder agree with transformers, and published checkpoints can be loaded."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    DPRContextEncoder,
    DPRQuestionEncoder,
    DPRReader,
    RagConfig,
    RagRetriever,
    RagSequenceForGeneration,
    RagTokenForGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from ragqa.errors import ArtefactError, BadInput, DamagedArtefact, Mismatch
from ragqa.models.dpr import load_dpr_tower
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.generation import decoding, fid
from ragqa.models.generation.fid import FusionInDecoder
from ragqa.models.generation.generators import (
    fingerprint_generator,
    load_generator,
    load_rag,
    make_generator,
    read_model_type,
    save_generator,
)
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.generation.template import CLOSED_BOOK, Template
from ragqa.models.inputs import Inputs
from ragqa.models.tower import Tower
from ragqa.objectives import IGNORED
from ragqa.runtime.encoder import load_encoder
from tests.helpers.generators import (
    passage,
    tiny_bart,
    tiny_dpr_config,
    tiny_t5,
    word_tokenizer,
    wordless,
    write_byt5,
    write_rag,
)

B, K, T = 3, 4, 6
CLASSES = {"token": RagTokenForGeneration, "sequence": RagSequenceForGeneration}


def batch(pad: int) -> tuple[Inputs, torch.Tensor, torch.Tensor]:
    """Return pairs, relevance and labels."""
    torch.manual_seed(5)
    mask = torch.arange(9) < torch.randint(3, 10, (B * K, 1))
    labels = torch.randint(5, 60, (B, T))
    labels[1, 4:] = labels[2, 2:] = IGNORED
    return Inputs(torch.randint(5, 60, (B * K, 9)).masked_fill(~mask, pad), mask.long()), torch.randn(B, K), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("marginal", CLASSES)
@pytest.mark.parametrize("make", [tiny_bart, tiny_t5])
def test_losses_and_gradients_agree_with_transformers(make: Any, marginal: str, smoothing: float) -> None:
    ours, generator = RagGenerator(Seq2Seq(make(), wordless()), marginal=marginal), make()
    question_encoder = DPRQuestionEncoder(tiny_dpr_config())
    theirs = CLASSES[marginal](
        question_encoder=question_encoder, generator=generator, n_docs=K, label_smoothing=smoothing
    )
    rules = ours.seq2seq.conventions
    inputs, relevance, labels = batch(rules.pad)
    given, live = relevance.clone().requires_grad_(), relevance.clone().requires_grad_()
    started = torch.cat([torch.full((B, 1), rules.start), labels.masked_fill(labels == IGNORED, rules.pad)], 1)
    pairs = {"context_input_ids": inputs.ids_NL, "context_attention_mask": inputs.mask_NL}
    expected = theirs.eval()(**pairs, doc_scores=given, labels=started, n_docs=K).loss
    loss = ours.compute_nll(inputs, live, labels, smoothing=smoothing)
    assert torch.allclose(loss, expected, rtol=1e-5, atol=1e-5)
    expected.sum().backward()
    loss.sum().backward()
    assert torch.allclose(live.grad, given.grad, atol=1e-5)
    for one, other in zip(ours.seq2seq.model.parameters(), generator.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_with_one_passage_all_generators_have_the_same_loss(smoothing: float) -> None:
    model = Seq2Seq(tiny_bart(), wordless())
    inputs, _, labels = batch(1)
    one = Inputs(inputs.ids_NL[:B], inputs.mask_NL[:B])
    losses = [
        RagGenerator(model, marginal=marginal).compute_nll(one, torch.zeros(B, 1), labels, smoothing=smoothing)
        for marginal in ("token", "sequence")
    ]
    losses.append(FusionInDecoder(model).compute_nll(one, torch.zeros(B, 1), labels, smoothing=smoothing))
    assert torch.allclose(losses[0], losses[1], rtol=1e-5) and torch.allclose(losses[0], losses[2], rtol=1e-5)


def test_missing_passages_are_not_read() -> None:
    model = Seq2Seq(tiny_bart(), wordless())
    inputs, relevance, labels = batch(1)
    relevance[:, 2:] = -torch.inf
    first = torch.tensor([row for row in range(B * K) if row % K < 2])
    fewer = Inputs(inputs.ids_NL[first], inputs.mask_NL[first])
    for generator in (RagGenerator(model), RagGenerator(model, marginal="sequence"), FusionInDecoder(model)):
        losses = (
            generator.compute_nll(inputs, relevance, labels),
            generator.compute_nll(fewer, relevance[:, :2], labels),
        )
        assert torch.allclose(*losses, rtol=1e-5), generator.kind


@pytest.mark.parametrize("make", [tiny_bart, tiny_t5])
def test_fusion_agrees_with_separate_encoding_and_joint_decoding(make: Any) -> None:
    """Encode each pair alone with transformers, and decode over all of them."""
    theirs, ours = make(), FusionInDecoder(Seq2Seq(make(), wordless()))
    inputs, relevance, labels = batch(ours.seq2seq.conventions.pad)
    losses = ours.compute_nll(inputs, relevance, labels)
    with torch.no_grad():
        for question in range(B):
            alone = [
                theirs.get_encoder()(inputs.ids_NL[row : row + 1, : int(inputs.mask_NL[row].sum())]).last_hidden_state
                for row in range(question * K, question * K + K)
            ]
            own = labels[question : question + 1]
            logits = theirs(encoder_outputs=BaseModelOutput(torch.cat(alone, 1)), labels=own).logits[0]
            expected = torch.nn.functional.cross_entropy(logits, own[0], reduction="sum")
            assert losses[question].item() == pytest.approx(expected.item(), rel=1e-4)


def test_fusion_attributes_answers_by_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Seq2Seq(tiny_bart(), wordless())
    fused = FusionInDecoder(model)
    inputs, relevance, _ = batch(1)
    relevance[1, 1:] = -torch.inf
    search = SearchSettings(beams=2, max_answer=5, max_candidates=2)
    found = fused.generate(inputs, relevance, search)
    order = torch.tensor([question * K + place for question in range(B) for place in (2, 0, 3, 1)])
    turned = fused.generate(Inputs(inputs.ids_NL[order], inputs.mask_NL[order]), relevance[:, [2, 0, 3, 1]], search)
    for row, other in zip(found, turned, strict=True):
        for one, two in zip(row, other, strict=True):
            assert one.ids == two.ids and one.log_prob == pytest.approx(two.log_prob, abs=1e-4)
            assert [one.posterior[place] for place in (2, 0, 3, 1)] == pytest.approx(two.posterior, abs=1e-5)
            assert sum(one.posterior) == pytest.approx(1.0, abs=1e-5)
    assert found[1][0].posterior == (1.0, 0.0, 0.0, 0.0)
    with torch.no_grad():  # a decoder with even attention: the shares are proportional to the lengths
        for layer in model.model.model.decoder.layers:
            layer.encoder_attn.q_proj.weight.zero_()
            layer.encoder_attn.q_proj.bias.zero_()
    lengths = inputs.mask_NL.view(B, K, -1).sum(-1)[0]
    shares = fused.generate(inputs, relevance, search)[0][0].posterior
    assert shares == pytest.approx((lengths / lengths.sum()).tolist(), abs=1e-5)
    whole = fused.generate(inputs, relevance, search)
    monkeypatch.setattr(decoding, "MAX_CACHED", 1)  # search questions and compute attention one by one
    monkeypatch.setattr(fid, "MAX_CACHED", 1)
    for row, other in zip(whole, fused.generate(inputs, relevance, search), strict=True):
        assert [each.ids for each in row] == [each.ids for each in other]
        for one, two in zip(row, other, strict=True):
            assert one.posterior == pytest.approx(two.posterior, abs=1e-6)
    stream = fused.stream(inputs, relevance, SearchSettings(max_answer=5))
    with pytest.raises(StopIteration) as end:
        while True:
            next(stream)
    assert end.value.value == fused.generate(inputs, relevance, SearchSettings(max_answer=5))


@pytest.mark.parametrize("kind", ["rag-token", "rag-sequence", "fid", "closed-book"])
def test_a_saved_generator_is_loaded_with_its_settings(kind: str, tmp_path: Path) -> None:
    template = Template("nq: {question}") if kind == "closed-book" else Template("{question} <- {title}: {passage}")
    seq2seq, sizes = Seq2Seq.load(write_byt5(tmp_path / "t5")), {"max_input": 77, "max_answer": 9}
    generator = make_generator(seq2seq, kind, template=template, **sizes).eval()
    generator.retriever = "0123"
    save_generator(generator, tmp_path / "saved")
    again = load_generator(tmp_path / "saved").eval()
    assert type(again) is type(generator)
    for name in ("kind", "template", "passages", "max_input", "max_answer"):
        assert getattr(again, name) == getattr(generator, name)
    assert again.retriever == ("0123" if kind.startswith("rag-") else None)
    found = [[passage("Genji", "a novel"), passage("Heian", "a court")], [passage("Genji", "a novel")]]
    inputs = generator.make_inputs(["who?", "when?"], found)
    relevance = torch.zeros(2, 1) if kind == "closed-book" else torch.tensor([[0.0, 0.0], [0.0, -torch.inf]])
    answers = [each.generate(inputs, relevance, SearchSettings(max_answer=4)) for each in (generator, again)]
    assert answers[0] == answers[1]
    with pytest.raises(BadInput, match=f"is a generator of kind {kind}, not other"):
        load_generator(tmp_path / "saved", "other")
    file = tmp_path / "saved" / "generator.json"
    row = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in row.items() if name != "vocabulary"}))
    assert load_generator(tmp_path / "saved").kind == kind  # earlier versions do not save it
    file.write_text(json.dumps(row | {"vocabulary": "0" * 16}))
    with pytest.raises(Mismatch, match="saved has changed since its generator was saved"):
        load_generator(tmp_path / "saved")
    (tmp_path / "saved" / "generator.json").write_text("{}")
    with pytest.raises(DamagedArtefact, match=r"generator\.json is damaged: KeyError"):
        load_generator(tmp_path / "saved")


def test_published_t5_checkpoints_are_loaded(tmp_path: Path) -> None:
    """The vocabulary is in spiece.model only, and another vocabulary changes the fingerprint."""
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    options = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "hard_vocab_limit": False, "minloglevel": 2}
    rows = ["who wrote the tale of genji", "The Tale of Genji is a novel", "by a lady of the court of Heian"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(rows), model_writer=written, vocab_size=50, **options
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    tiny_t5(len(pieces) + 100 + 8).save_pretrained(tmp_path / "t5")  # a hundred sentinels, and rows that no piece has
    (tmp_path / "t5" / "spiece.model").write_bytes(written.getvalue())
    generator = load_generator(tmp_path / "t5", "closed-book").eval()
    question = "who wrote the novel"
    assert generator.make_inputs([question], [[]]).ids_NL.tolist() == [[*pieces.encode(question), 1]]
    assert generator.seq2seq.tokens.make_labels(["a lady"], 9).tolist() == [[*pieces.encode("a lady"), 1]]
    assert generator.seq2seq.tokens.decode([0, *pieces.encode("a lady"), 1]) == "a lady"
    save_generator(generator, tmp_path / "saved")
    again = load_generator(tmp_path / "saved")
    assert torch.equal(again.make_inputs([question], [[]]).ids_NL, generator.make_inputs([question], [[]]).ids_NL)
    before = fingerprint_generator(tmp_path / "t5")
    (tmp_path / "t5" / "spiece.model").write_bytes(written.getvalue() + b" ")
    assert fingerprint_generator(tmp_path / "t5") != before


@pytest.mark.parametrize("file", ["vocab.json", "merges.txt", "spiece.model", "source.spm", "tokenizer.json"])
def test_the_fingerprint_covers_all_tokenizer_files(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("a")
    before = fingerprint_generator(tmp_path)
    (tmp_path / file).write_text("b")
    assert fingerprint_generator(tmp_path) != before


def test_a_plain_seq2seq_needs_a_kind(tmp_path: Path) -> None:
    """T5's closed-book checkpoints are plain seq2seqs."""
    path = write_byt5(tmp_path)
    generator = load_generator(path, "closed-book")
    assert (generator.kind, generator.template, generator.passages) == ("closed-book", CLOSED_BOOK, 1)
    with pytest.raises(
        BadInput, match="a plain seq2seq: name its kind, one of rag-token, rag-sequence, fid, closed-book"
    ):
        load_generator(path)
    with pytest.raises(BadInput, match="generator 'gpt': choose one of rag-token"):
        load_generator(path, "gpt")
    with pytest.raises(BadInput, match="is not for fid"):
        make_generator(generator.seq2seq, "fid", template=CLOSED_BOOK)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("marginal", CLASSES)
def test_published_rag_checkpoints_are_loaded(marginal: str, old: bool, tmp_path: Path) -> None:
    model = write_rag(tmp_path, CLASSES[marginal], published=old, title_sep=" : ", max_combined_length=99)
    if old:  # in the published format
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    read = load_rag(tmp_path)
    generator = read.generator.eval()
    assert (generator.kind, generator.passages, generator.max_input) == (f"rag-{marginal}", 3, 99)
    assert generator.template.text == "{title} : {passage} // {question}"
    assert generator.seq2seq.conventions.forced_first == 0
    inputs = generator.make_inputs(["w3 w9"], [[passage("Genji", "a novel"), passage("Heian", "a court")]])
    assert generator.seq2seq.tokens.decode(inputs.ids_NL[0].tolist()) == "Genji : a novel // w3 w9"
    labels, relevance = generator.seq2seq.tokens.make_labels(["a lady"], 9), torch.tensor([[0.3, 0.1]])
    pairs = {"context_input_ids": inputs.ids_NL, "context_attention_mask": inputs.mask_NL, "n_docs": 2}
    with torch.no_grad():
        started = torch.cat([torch.tensor([[2]]), labels], 1)
        expected = model(**pairs, doc_scores=relevance, labels=started).loss
        assert torch.allclose(generator.compute_nll(inputs, relevance, labels), expected, rtol=1e-5)
        ids = torch.tensor([read.question_tokens.encode_bare("w1 w2")])
        vector = read.questions.eval()(ids, torch.ones_like(ids))
        assert torch.allclose(vector, model.rag.question_encoder(ids).pooler_output, atol=1e-6)
    assert load_generator(tmp_path).kind == generator.kind


def test_a_published_rag_reads_questions_respelled_by_its_question_tower(tmp_path: Path) -> None:
    """Compare with the retriever of transformers, which decodes the question from the tower's ids."""
    write_rag(tmp_path / "rag", RagTokenForGeneration, published=True)
    vocabulary = tmp_path / "rag" / "question_encoder_tokenizer" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("w50", "?"))
    question, docs = "W3  w\u00e9 W9?", {"title": ["Genji", "Heian"], "text": ["a novel", "a court"]}
    theirs = RagRetriever.__new__(RagRetriever)
    config = RagConfig.from_pretrained(tmp_path / "rag")
    theirs.config, theirs.n_docs, theirs.return_tokenized_docs = config, 2, False
    for name in ("question_encoder", "generator"):
        tokenizer = AutoTokenizer.from_pretrained(
            tmp_path / "rag", subfolder=f"{name}_tokenizer", config=getattr(config, name)
        )
        setattr(theirs, f"{name}_tokenizer", tokenizer)
    theirs.question_encoder_tokenizer.clean_up_tokenization_spaces = True  # the default when RAG was trained
    theirs.retrieve = lambda vectors, count: (np.zeros((1, 2, 4)), np.zeros((1, 2)), [docs])
    ids = theirs.question_encoder_tokenizer([question])["input_ids"]
    expected = theirs(ids, np.zeros((1, 4)), return_tensors="pt")
    generator = load_rag(tmp_path / "rag").generator
    found = [[passage(*pair) for pair in zip(docs["title"], docs["text"], strict=True)]]
    save_generator(generator, tmp_path / "saved")
    for each in (generator, load_generator(tmp_path / "saved")):
        inputs = each.make_inputs([question], found)
        length = inputs.ids_NL.shape[1]
        assert torch.equal(inputs.ids_NL, expected["context_input_ids"][:, :length])
        assert expected["context_attention_mask"].sum() == inputs.mask_NL.sum()
        assert each.seq2seq.tokens.decode(inputs.ids_NL[0].tolist()) == "Genji / a novel // w3 w9?"


def test_damaged_rag_checkpoints_are_reported_in_one_line(tmp_path: Path) -> None:
    write_rag(tmp_path, RagTokenForGeneration)
    shutil.rmtree(tmp_path / "generator_tokenizer")
    with pytest.raises(ArtefactError, match=r"has no tokenizer|it belongs to another model"):
        load_rag(tmp_path)
    row = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(row | {"generator": row["generator"] | {"model_type": "led"}}))
    with pytest.raises(ArtefactError, match=r"the generator of .* is a led, not one of the supported seq2seqs"):
        load_rag(tmp_path)
    row["generator"]["decoder_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(row))
    with pytest.raises(ArtefactError, match=r"lacks \d+ weights of its checkpoint of RAG, for example rag.generator"):
        load_rag(tmp_path)
    with pytest.raises(ArtefactError, match="generator_tokenizer: no such directory"):
        load_generator(tmp_path / "generator_tokenizer")
    assert read_model_type(tmp_path) == "rag"


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("width", [0, 6])
@pytest.mark.parametrize("kind", [DPRQuestionEncoder, DPRContextEncoder])
def test_dpr_encoders_become_towers(kind: Any, width: int, binary: bool, tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = kind(tiny_dpr_config(projection_dim=width)).eval()
    model.save_pretrained(tmp_path / "dpr")
    if binary:
        torch.save(model.state_dict(), tmp_path / "dpr" / "pytorch_model.bin")
        (tmp_path / "dpr" / "model.safetensors").unlink()
    tower = load_dpr_tower(tmp_path / "dpr", kind.__name__).eval()
    ids, mask = torch.tensor([[2, 10, 11, 3], [2, 12, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        assert torch.allclose(tower(ids, mask), model(ids, mask).pooler_output, atol=1e-6)
        tower.save(tmp_path / "tower")
        assert torch.equal(Tower.load(tmp_path / "tower").eval()(ids, mask), tower(ids, mask))


def test_a_single_dpr_encoder_is_refused(tmp_path: Path) -> None:
    for kind, line in (
        (DPRQuestionEncoder, "encodes only DPR's questions, and passages need the other encoder: combine both"),
        (DPRContextEncoder, "encodes only DPR's passages, and questions need the other encoder: combine"),
        (DPRReader, "holds DPRReader, not an encoder of DPR"),
    ):
        path = tmp_path / kind.__name__
        kind(tiny_dpr_config()).save_pretrained(path)
        word_tokenizer(60).save_pretrained(path)
        for load in (Tower.load, DualEncoder.load, load_encoder):
            with pytest.raises(ArtefactError, match=line) as caught:
                load(path)  # type: ignore[operator]
            assert "\n" not in str(caught.value)
