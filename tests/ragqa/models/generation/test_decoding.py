"""Search and decoding agree with transformers, and find the best of all short answers."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DPRQuestionEncoder, RagSequenceForGeneration, RagTokenForGeneration

from ragqa.errors import BadInput, Mismatch
from ragqa.models.generation import decoding, seq2seq
from ragqa.models.generation.decoding import Candidate
from ragqa.models.generation.rag import RagGenerator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.inputs import Inputs
from tests.helpers.generators import FAMILIES, tiny_bart, tiny_dpr_config, tiny_t5, wordless

B, K = 3, 4
CLASSES = {"token": RagTokenForGeneration, "sequence": RagSequenceForGeneration}


def make_forcing_model(first: int | None, **options: Any) -> Any:
    model = tiny_bart(**options)
    model.generation_config.forced_bos_token_id = first
    return model


# Seed 3 of T5: others say its padding, which transformers then does not count.
GENERATORS = {
    "bart": tiny_bart,
    "bart that begins": lambda: make_forcing_model(0, seed=1),
    "t5": lambda: tiny_t5(seed=3),
}


def rag(generator: Any, marginal: str, **options: Any) -> Any:
    """Wrap a generator in transformers' RAG classes."""
    asked = DPRQuestionEncoder(tiny_dpr_config())
    return CLASSES[marginal](question_encoder=asked, generator=generator, n_docs=K, **options).eval()


def make_pairs(pad: int, *, ragged: bool, count: int = B * K, size: int = 60) -> Inputs:
    torch.manual_seed(3)
    lengths = torch.randint(3, 10, (count, 1)) if ragged else torch.full((count, 1), 9)
    mask = torch.arange(9) < lengths
    return Inputs(torch.randint(5, size, (count, 9)).masked_fill(~mask, pad), mask.long())


def make_relevance() -> torch.Tensor:
    torch.manual_seed(4)
    return torch.randn(B, K)


def generate_with_transformers(
    model: Any, marginal: str, inputs: Inputs, search: SearchSettings
) -> list[tuple[int, ...]]:
    """Return the answers of transformers' RAG, from their starts to their ends."""
    said = model.generator.generation_config
    options: dict[str, Any] = {
        "num_beams": search.beams,
        "max_length": search.max_answer + 1,
        "min_length": search.min_answer + 1,
        "length_penalty": search.length_penalty,
        "num_return_sequences": search.max_candidates,
        "early_stopping": False,
        "decoder_start_token_id": said.decoder_start_token_id,
    }
    if marginal == "token":  # a plain model has no conventions of a generator
        for name in ("eos_token_id", "pad_token_id", "forced_bos_token_id", "forced_eos_token_id"):
            options[name] = getattr(said, name)
    given = {"context_input_ids": inputs.ids_NL, "context_attention_mask": inputs.mask_NL, "n_docs": K}
    rows = model.generate(**given, doc_scores=make_relevance(), **options)[:, 1:].tolist()
    return [_cut_at_end(row, said.eos_token_id, said.pad_token_id) for row in rows]


def _cut_at_end(row: list[int], end: int, pad: int) -> tuple[int, ...]:
    if end in row:
        return tuple(row[: row.index(end) + 1])
    while row and row[-1] == pad:
        row = row[:-1]
    return tuple(row)


def ids(found: list[list[Candidate]]) -> list[tuple[int, ...]]:
    return [each.ids for row in found for each in row]


SEARCHES = {
    "greedy": SearchSettings(max_answer=7, min_answer=2),
    "beams": SearchSettings(beams=3, max_answer=7, min_answer=2, max_candidates=2),
    "long beams": SearchSettings(beams=4, max_answer=8, min_answer=3, length_penalty=2.0, max_candidates=3),
    "short beams": SearchSettings(beams=3, max_answer=8, min_answer=2, length_penalty=-0.5, max_candidates=2),
}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("marginal", CLASSES)
def test_answers_agree_with_transformers(name: str, marginal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs have one length, because transformers' RAG-Sequence lets beams attend to padding, which ragqa does not."""
    monkeypatch.setattr(decoding, "_MAX_LOGITS", 1)  # score candidates one by one
    model = rag(GENERATORS[name](), marginal)
    ours = RagGenerator(Seq2Seq(GENERATORS[name](), wordless()), marginal=marginal)
    inputs = make_pairs(ours.seq2seq.conventions.pad, ragged=marginal == "token")
    for search in SEARCHES.values():
        assert ids(ours.generate(inputs, make_relevance(), search)) == generate_with_transformers(
            model, marginal, inputs, search
        ), search


PLAIN = {**FAMILIES, **GENERATORS}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_seq2seq_agrees_with_generate(name: str) -> None:
    """Answers end at all lengths, so that searches finish one by one."""
    model = PLAIN[name]()
    end = model.generation_config.eos_token_id
    with torch.no_grad():
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias[0, end] = 1.0 if name in ("marian", "blenderbot") else 4.0
        elif name == "encoder-decoder":
            model.decoder.cls.predictions.bias[end] = 4.0
        else:
            model.lm_head.weight[end] *= 4.0 if name == "m2m_100" else 6.0
    ours = Seq2Seq(PLAIN[name](), wordless())
    ours.model.load_state_dict(model.state_dict())
    inputs = make_pairs(ours.conventions.pad, ragged=True)
    search = SearchSettings(beams=3, max_answer=12, max_candidates=3)
    options = {"num_beams": 3, "num_return_sequences": 3, "max_length": 13, "early_stopping": False}
    rows = model.generate(inputs.ids_NL, attention_mask=inputs.mask_NL, **options)[:, 1:].tolist()
    with torch.no_grad():
        found = decoding.decode_token(ours, ours.encode(inputs), torch.zeros(len(rows) // 3, 1), search)
    rules = ours.conventions
    assert ids(found) == [_cut_at_end(row, rules.ends[0], rules.pad) for row in rows]
    assert len({len(each) for each in ids(found)}) > 3


TINY = 8
"""Size of a vocabulary whose answers of up to three tokens can be enumerated."""


@pytest.fixture(scope="module")
def tiny() -> tuple[Seq2Seq, Inputs, torch.Tensor, dict[tuple[int, ...], torch.Tensor]]:
    """Return a model, K pairs, their prior, and log p(y_t|z, y_<t) ``[K, T]`` of every answer by its forward pass."""
    model = tiny_bart(TINY, spread=0.8)
    model.config.forced_eos_token_id = model.generation_config.forced_eos_token_id = None
    inputs = make_pairs(1, ragged=True, count=K, size=TINY)
    others = [piece for piece in range(TINY) if piece != 2]
    every = (
        [(2,)]
        + [(a, 2) for a in others]
        + [(a, b, c) for a, b in itertools.product(others, others) for c in range(TINY)]
    )
    said = torch.tensor([[2, *answer[:-1], *[1] * (3 - len(answer))] for answer in every])
    with torch.no_grad():
        given = {
            "input_ids": inputs.ids_NL.repeat(len(every), 1),
            "attention_mask": inputs.mask_NL.repeat(len(every), 1),
        }
        logits = model(**given, decoder_input_ids=said.repeat_interleave(K, 0)).logits.view(len(every), K, 3, TINY)
    scores = {
        answer: row[:, : len(answer)].log_softmax(-1).gather(-1, torch.tensor([answer] * K)[..., None])[..., 0]
        for answer, row in zip(every, logits, strict=True)
    }
    return Seq2Seq(model, wordless(TINY)), inputs, torch.tensor([0.3, -1.0, 0.8, 0.1]).log_softmax(0), scores


def test_thorough_decoding_finds_the_most_probable_answer(tiny: Any) -> None:
    model, inputs, prior, scores = tiny
    every = {answer: float((score.sum(-1) + prior).logsumexp(0)) for answer, score in scores.items()}
    assert sum(map(torch.exp, map(torch.tensor, every.values()))) == pytest.approx(1.0, abs=1e-4)
    found = RagGenerator(model, marginal="sequence").generate(
        inputs, prior[None], SearchSettings(60, 3, max_candidates=400)
    )[0]
    assert found[0].ids == max(every, key=lambda answer: every[answer])
    assert [each.log_prob for each in found] == sorted((each.log_prob for each in found), reverse=True)
    assert len({each.ids for each in found}) == len(found) > 60
    for each in found:
        assert each.log_prob == pytest.approx(every[each.ids], abs=1e-4)
        assert each.posterior == pytest.approx((scores[each.ids].sum(-1) + prior).softmax(0).tolist(), abs=1e-4)


def test_the_mixture_finds_the_most_probable_answer(tiny: Any) -> None:
    model, inputs, prior, scores = tiny
    every = {answer: float((score + prior[:, None]).logsumexp(0).sum()) for answer, score in scores.items()}
    search = SearchSettings(60, 3, length_penalty=0.0, max_candidates=60)
    found = RagGenerator(model, marginal="token").generate(inputs, prior[None], search)[0]
    best = sorted(every, key=lambda answer: -every[answer])
    assert [each.ids for each in found[:20]] == best[:20]
    for each in found:
        assert each.log_prob == pytest.approx(every[each.ids], abs=1e-4)
        shares = (scores[each.ids] + prior[:, None]).softmax(0).mean(-1)
        assert each.posterior == pytest.approx(shares.tolist(), abs=1e-4)


def test_fast_decoding_counts_only_candidates_of_a_passages_own_beam(tiny: Any) -> None:
    model, inputs, prior, scores = tiny
    generator = RagGenerator(model, marginal="sequence")
    for beams in (1, 3):
        alone = [
            [
                each.ids
                for each in RagGenerator(model).generate(
                    _rows(inputs, [z]), torch.zeros(1, 1), SearchSettings(beams, 3, max_candidates=beams)
                )[0]
            ]
            for z in range(K)
        ]
        found = generator.generate(inputs, prior[None], SearchSettings(beams, 3, max_candidates=99), fast=True)[0]
        assert {each.ids for each in found} == {answer for row in alone for answer in row}
        for each in found:
            own = torch.tensor([each.ids in row for row in alone])
            joint = (scores[each.ids].sum(-1) + prior).masked_fill(~own, -torch.inf)
            assert each.log_prob == pytest.approx(float(joint.logsumexp(0)), abs=1e-4)
            assert each.posterior == pytest.approx(joint.softmax(0).tolist(), abs=1e-4)


def _rows(inputs: Inputs, rows: list[int]) -> Inputs:
    longest = int(inputs.mask_NL[rows].sum(-1).max())
    return Inputs(inputs.ids_NL[rows, :longest], inputs.mask_NL[rows, :longest])


@pytest.mark.parametrize("marginal", CLASSES)
@pytest.mark.parametrize("beams", [1, 3])
def test_answers_do_not_depend_on_the_batch(marginal: str, beams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question alone has less padding and only its own passages."""
    ours = RagGenerator(Seq2Seq(tiny_bart(spread=0.3), wordless()), marginal=marginal)
    inputs, scores, search = (
        make_pairs(1, ragged=True),
        make_relevance(),
        SearchSettings(beams, 9, max_candidates=min(beams, 2)),
    )
    scores[1, 2:] = -torch.inf
    together = ours.generate(inputs, scores, search)
    monkeypatch.setitem(seq2seq._MIN_SAVING, "cpu", 1)
    for question, count in enumerate((K, 2, K)):
        own = list(range(question * K, question * K + count))
        alone = ours.generate(_rows(inputs, own), scores[question : question + 1, :count], search)[0]
        assert [each.ids for each in alone] == [each.ids for each in together[question]]
        for one, other in zip(alone, together[question], strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
            assert (*one.posterior, *[0.0] * (K - count)) == pytest.approx(other.posterior, abs=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("marginal", CLASSES)
def test_memory_limits_are_respected(marginal: str, beams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the three questions fit, and the encoder reads 20 tokens at once."""
    ours = RagGenerator(Seq2Seq(tiny_bart(), wordless()), marginal=marginal)
    inputs, search = make_pairs(1, ragged=True), SearchSettings(beams, 6, max_candidates=beams)
    whole = ours.generate(inputs, make_relevance(), search)
    monkeypatch.setattr(decoding, "_MAX_LOGITS", 2 * K * 6 * 60)
    monkeypatch.setattr(seq2seq, "_MAX_ENCODED", 20)
    logits: list[int] = []
    read: list[int] = []
    model = ours.seq2seq.model
    model.lm_head.register_forward_hook(lambda _, __, made: logits.append(made.numel()))
    model.model.encoder.layers[0].register_forward_hook(lambda _, given, __: read.append(given[0].shape[:2].numel()))
    found = ours.generate(inputs, make_relevance(), search)
    assert ids(found) == ids(whole)
    assert max(logits) <= decoding._MAX_LOGITS and max(read) <= 20 and len(read) > 2
    for one, other in zip(
        (each for row in found for each in row), (each for row in whole for each in row), strict=True
    ):
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    read.clear()
    ours.seq2seq.encode(inputs)  # with gradients all activations stay in memory
    assert max(read) > 20


@pytest.mark.parametrize("name", GENERATORS)
def test_streaming_agrees_with_greedy_decoding(name: str) -> None:
    ours = RagGenerator(Seq2Seq(GENERATORS[name](), wordless()))
    inputs, search = make_pairs(ours.seq2seq.conventions.pad, ragged=True), SearchSettings(max_answer=6)
    stream, said = ours.stream(inputs, make_relevance(), search), []
    with pytest.raises(StopIteration) as end:
        while True:
            said.append(next(stream))
    found = end.value.value
    assert found == ours.generate(inputs, make_relevance(), search)
    rows = torch.stack(said, 1).tolist()
    assert [tuple(row[: len(each[0].ids)]) for row, each in zip(rows, found, strict=True)] == ids(found)


@settings(max_examples=15)
@given(
    scores=st.lists(st.floats(-5, 5), min_size=2, max_size=4),
    marginal=st.sampled_from(list(CLASSES)),
    fast=st.booleans(),
    beams=st.integers(1, 3),
)
def test_posteriors_sum_to_one(scores: list[float], marginal: Any, fast: bool, beams: int) -> None:
    """Equal passages share by relevance, and log p(y|x) does not depend on their number."""
    ours = RagGenerator(Seq2Seq(tiny_bart(), wordless()), marginal=marginal)
    one = _rows(make_pairs(1, ragged=True), [0])
    count = len(scores)
    same = Inputs(one.ids_NL.expand(count, -1), one.mask_NL.expand(count, -1))
    found = ours.generate(same, torch.tensor([scores]), SearchSettings(beams, 5, max_candidates=beams), fast=fast)[0]
    alone = ours.generate(one, torch.zeros(1, 1), SearchSettings(beams, 5, max_candidates=beams), fast=fast)[0]
    for each, single in zip(found, alone, strict=True):
        assert each.ids == single.ids and each.log_prob == pytest.approx(single.log_prob, abs=1e-3)
        assert sum(each.posterior) == pytest.approx(1.0, abs=1e-5)
        assert each.posterior == pytest.approx(torch.tensor(scores).softmax(0).tolist(), abs=1e-4)


def test_questions_without_passages_are_reported_in_one_line() -> None:
    ours = RagGenerator(Seq2Seq(tiny_bart(), wordless()))
    scores = torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]])
    with pytest.raises(BadInput, match="question 1 of the batch has no passage to answer from"):
        ours.generate(make_pairs(1, ragged=True, count=4), scores, SearchSettings())
    ours.train()
    with pytest.raises(Mismatch, match="in training mode"):
        ours.generate(make_pairs(1, ragged=True, count=4), torch.zeros(2, 2), SearchSettings())
    with pytest.raises(BadInput, match="beams, max_answer and max_candidates must be at least 1"):
        SearchSettings(beams=0)
