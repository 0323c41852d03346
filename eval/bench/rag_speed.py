"""Measure a training step and decoding of RAG, compared with transformers' RAG classes.

    python -m eval.bench.rag_speed --out docs/measurements/rag_speed.json
    python -m eval.bench.rag_speed --shape base --precision bfloat16 --device cuda --out rag_speed.json

Both sides have the same weights, tokens and precision. Weights and tokens are random, because the speed depends only on
lengths. A step is forward, loss, backward and an update by AdamW, without dropout. The learning rate and the weight
decay are 0, so the losses of both sides must be equal. transformers gets inputs padded to the longest pair of the
batch. A further row pads to 300 tokens, as the retriever of transformers does.

For decoding, all pairs have the same length, because the beams of transformers also read padding. In float32, the
answers must be equal. In bfloat16, where rounding can change answers, the report counts the different ones.
"""

import copy
import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from eval.bench.process import measure_memory
from eval.bench.record import report
from eval.command import run_command
from ragqa.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from ragqa.models.generation.rag import Marginal, RagGenerator
    from ragqa.models.generation.seq2seq import Seq2Seq
    from ragqa.models.inputs import Inputs

SHAPES = {"tiny": (2, 64, 2_000), "small": (4, 256, 50_265), "base": (6, 768, 50_265), "large": (12, 1024, 50_265)}
"""Layers of the encoder (and of the decoder), width, and vocabulary size; base and large are the sizes of BART."""


@dataclass(frozen=True, kw_only=True)
class RagSpeedConfig:
    """Settings of the measurement: sizes of the model, of a step and of decoding."""

    out: Path
    """JSON file to write the figures to."""
    shape: Literal["tiny", "small", "base", "large"] = "small"
    """Size of the model, a key of ``SHAPES``."""
    device: str = "cpu"
    """Device, as torch names it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of weights and computation."""
    batch: int = 8
    """Number of questions of a step."""
    passages: int = 5
    """Number of passages of a question."""
    tokens: int = 180
    """Maximum length of a pair of question and passage in training, in tokens; the minimum is half of it."""
    decoding_tokens: int = 120
    """Length of a pair of question and passage in decoding, in tokens."""
    beams: int = 4
    """Number of beams in decoding."""
    longest: int = 16
    """Maximum length of a decoded answer, in tokens."""
    steps: int = 5
    """Number of measured training steps, and of measured decodings; one more of each comes first as a warm-up."""


def main(config: RagSpeedConfig) -> None:
    """Measure training steps and decoding of RAG; write the figures.

    Raises:
        BadInput: the losses of the two sides differ or, in float32, their decoded answers.
    """
    import torch

    from ragqa.models.generation.generator_kinds import MAX_INPUT
    from ragqa.models.generation.rag import RagGenerator
    from ragqa.models.generation.search import SearchSettings
    from ragqa.models.pretrained import set_dropout
    from ragqa.objectives import IGNORED

    torch.manual_seed(0)
    seq2seq = _make_random_bart(config.shape)
    set_dropout(seq2seq, 0.0)
    seq2seq.to(device=config.device, dtype=getattr(torch, config.precision))
    ours = RagGenerator(seq2seq, max_input=MAX_INPUT).train()
    inputs = _make_inputs(config, config.tokens // 2, config.tokens)
    answers = _make_inputs(replace(config, passages=1), 3, 9)
    labels = answers.ids_NL.masked_fill(answers.mask_NL == 0, IGNORED)
    relevance = torch.randn(config.batch, config.passages, device=config.device)
    figures: dict[str, Any] = {
        "model": f"BART {config.shape}, random",
        "parameters": sum(parameter.numel() for parameter in seq2seq.parameters()),
        **{name: value for name, value in asdict(config).items() if name not in ("out", "shape", "steps")},
        "threads": torch.get_num_threads(),
        "training_inputs": _describe_lengths(inputs.mask_NL),
        "training_answers": _describe_lengths(answers.mask_NL),
    }
    marginals: tuple[Marginal, ...] = ("token", "sequence")
    for marginal in marginals:
        ours.marginal = marginal
        figures[f"step_{marginal}"] = _compare_steps(ours, inputs, relevance, labels, config.steps)
    inputs = _make_inputs(config, config.decoding_tokens, config.decoding_tokens)
    search = SearchSettings(config.beams, config.longest, min_answer=2)
    figures["decode_thorough"] = _compare_decoding(ours.eval(), inputs, relevance, search, config.steps)
    report(config.out, figures, corpus="none: random tokens", questions=f"{config.batch} of random tokens")


def _make_inputs(config: RagSpeedConfig, shortest: int, longest: int) -> "Inputs":
    import torch

    from ragqa.models.inputs import pad_rows

    vocabulary = SHAPES[config.shape][2]
    lengths = torch.randint(shortest, longest + 1, (config.batch * config.passages,)).tolist()
    rows = [torch.randint(4, vocabulary, (length,)).tolist() for length in lengths]  # ids below 4 are special tokens
    return pad_rows(rows, pad=1).to(config.device)


def _make_random_bart(shape: str) -> "Seq2Seq":
    from transformers import BartConfig, BartForConditionalGeneration

    from ragqa.models.generation.seq2seq import Seq2Seq

    layers, width, vocabulary = SHAPES[shape]
    heads, halves = max(1, width // 64), ("encoder", "decoder")
    sizes = {f"{half}_{name}": n for half in halves for name, n in (("layers", layers), ("attention_heads", heads))}
    config = BartConfig(
        vocab_size=vocabulary, d_model=width, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, **sizes
    )
    # A stand-in for the tokenizer, because no text is tokenized.
    no_tokenizer: Any = SimpleNamespace(size=vocabulary, pad=None, end=None, start=None)
    return Seq2Seq(BartForConditionalGeneration(config), no_tokenizer)


def _make_peer(ours: "Seq2Seq", marginal: str, passages: int) -> Any:
    """Return the RAG of transformers with a copy of the weights and its default attention."""
    from transformers import DPRConfig, DPRQuestionEncoder, RagSequenceForGeneration, RagTokenForGeneration

    classes = {"token": RagTokenForGeneration, "sequence": RagSequenceForGeneration}
    generator = copy.deepcopy(ours.model)
    generator.set_attn_implementation("sdpa")
    encoder = DPRQuestionEncoder(DPRConfig(vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    return classes[marginal](question_encoder=encoder, generator=generator, n_docs=passages).to(ours.model.device)


def _compare_steps(
    ours: "RagGenerator", inputs: "Inputs", relevance_BK: "Tensor", labels_BT: "Tensor", steps: int
) -> dict[str, Any]:
    """Measure training steps of both sides; raise BadInput if the losses differ."""
    import torch

    from ragqa.models.inputs import Inputs
    from ragqa.objectives import IGNORED

    peer = _make_peer(ours.seq2seq, ours.marginal, relevance_BK.shape[1]).train()
    rules, grow = ours.seq2seq.conventions, torch.nn.functional.pad
    updates = [torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0) for model in (ours, peer.rag.generator)]
    start = torch.full_like(labels_BT[:, :1], rules.start)
    peer_labels_BT = torch.cat([start, labels_BT.masked_fill(labels_BT == IGNORED, rules.pad)], 1)

    def step(update: Any, compute_loss: Callable[[Any], Any]) -> float:
        update.zero_grad()
        loss = compute_loss(relevance_BK.clone().requires_grad_()).sum()
        loss.backward()
        update.step()
        return float(loss.detach())

    def peer_loss(pairs_of_texts: Inputs, scores_BK: Any) -> Any:
        pairs = {"context_input_ids": pairs_of_texts.ids_NL, "context_attention_mask": pairs_of_texts.mask_NL}
        return peer(**pairs, doc_scores=scores_BK, labels=peer_labels_BT, n_docs=scores_BK.shape[1]).loss

    more = ours.max_input - inputs.ids_NL.shape[1]
    fixed = Inputs(grow(inputs.ids_NL, (0, more), value=rules.pad), grow(inputs.mask_NL, (0, more)))
    sides = {
        "ours": lambda: step(updates[0], lambda scores_BK: ours.compute_nll(inputs, scores_BK, labels_BT)),
        "transformers": lambda: step(updates[1], lambda scores_BK: peer_loss(inputs, scores_BK)),
        f"transformers_{ours.max_input}": lambda: step(updates[1], lambda scores_BK: peer_loss(fixed, scores_BK)),
    }
    figures, losses = _time_in_turn(sides, labels_BT.device, steps)
    tolerance = 1e-4 if ours.seq2seq.model.dtype == torch.float32 else 2e-2
    if any(abs(loss / losses["ours"] - 1) > tolerance for loss in losses.values()):
        raise BadInput(f"the losses of the two sides differ: {losses}")
    return figures


def _compare_decoding(
    ours: "RagGenerator", inputs: "Inputs", relevance_BK: "Tensor", search: Any, steps: int
) -> dict[str, Any]:
    """Measure decoding by both sides; raise BadInput if the answers differ in float32."""
    peer, pad = _make_peer(ours.seq2seq, "sequence", relevance_BK.shape[1]).eval(), ours.seq2seq.conventions.pad
    options = {"num_beams": search.beams, "max_length": search.max_answer + 1, "min_length": search.min_answer + 1}
    pairs: dict[str, Any] = {"context_input_ids": inputs.ids_NL, "context_attention_mask": inputs.mask_NL}
    pairs |= {"doc_scores": relevance_BK, "n_docs": relevance_BK.shape[1]}
    sides = {
        "ours": lambda: [row[0].ids for row in ours.generate(inputs, relevance_BK, search)],
        "transformers": lambda: peer.generate(**pairs, early_stopping=False, **options)[:, 1:].tolist(),
    }
    figures, answers = _time_in_turn(sides, relevance_BK.device, steps)
    differ = sum(
        list(theirs[: len(own)]) != list(own) or any(token != pad for token in theirs[len(own) :])
        for own, theirs in zip(answers["ours"], answers["transformers"], strict=True)
    )
    # The types are equal only for float32, in which rounding changes no answer.
    if differ and relevance_BK.dtype == ours.seq2seq.model.dtype:
        raise BadInput(f"transformers gives other answers to {differ} of {len(answers['ours'])} questions")
    lengths = [len(own) for own in answers["ours"]]
    described = {"tokens_mean": round(mean(lengths), 1), "tokens_longest": max(lengths), "otherwise": differ}
    return {**figures, "answers": described}


def _time_in_turn(
    sides: Mapping[str, Callable[[], Any]], device: Any, steps: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the median seconds and peak memory (MB) of each side, and its last result.

    The sides run alternately, so that other work on the machine slows all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    results: dict[str, Any] = {}
    for _ in range(steps + 1):
        for name, work in sides.items():
            _synchronize(device)
            began = time.perf_counter()
            results[name] = work()
            _synchronize(device)
            seconds[name].append(time.perf_counter() - began)
    figures: dict[str, Any] = {
        name: {"seconds": round(median(seconds[name][1:]), 4), "peak_mb": _measure_peak(work, device)}
        for name, work in sides.items()
    }
    for name, row in figures.items():
        if name != "ours":
            row["ours_is_times_as_fast"] = round(row["seconds"] / figures["ours"]["seconds"], 2)
    return figures, results


def _synchronize(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def _measure_peak(work: Callable[[], Any], device: Any) -> int:
    """Return the peak memory of ``work`` in MB, in addition to the memory before."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() // 2**20
        work()
        return torch.cuda.max_memory_allocated() // 2**20 - before
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory to the system, because work could use it without a new peak
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = measure_memory()["rss_mb"]
    work()
    return measure_memory()["peak_rss_mb"] - before


def _describe_lengths(mask_NL: "Tensor") -> dict[str, Any]:
    lengths: list[int] = mask_NL.sum(-1).tolist()
    return {"texts": len(lengths), "tokens_mean": round(mean(lengths), 1), "tokens_longest": max(lengths)}


if __name__ == "__main__":
    run_command(main, RagSpeedConfig, __doc__)
