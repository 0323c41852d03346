"""Measure a training step and thorough decoding of RAG, next to transformers' own RAG classes.

    python -m eval.bench.rag_speed --index squad.index --questions dev.jsonl --out docs/measurements/rag_speed.json

Both sides have the same weights, precision and texts: questions with the passages that BM25 finds. A step is forward,
loss, backward and an update by AdamW without dropout; its rate and decay are 0, so all steps must have equal losses.
Transformers gets inputs padded to the longest of the batch; a further row pads to RAG's 300 tokens, as its retriever
does. Thorough decoding reads pairs that are all cut to one length, because transformers lets beams look at padding; the
answers must be equal (in bfloat16 the report counts those that differ).

Without ``--generator`` the weights are random, in a BART of the ``--shape`` named, with a vocabulary of BART's size.
"""

import copy
import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Literal

from eval.bench.process import measure_memory
from eval.bench.record import report
from eval.command import report_errors
from ragqa.cli.config import parse_config
from ragqa.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from ragqa.models.generation.rag import Marginal, RagGenerator
    from ragqa.models.generation.seq2seq import Seq2Seq
    from ragqa.models.inputs import Inputs
    from ragqa.types import Passage

SHAPES = {"tiny": (2, 64, 2_000), "small": (4, 256, 50_265), "base": (6, 768, 50_265), "large": (12, 1024, 50_265)}
"""Layers of each half, width, vocabulary; base and large are BART's."""


@dataclass(frozen=True, kw_only=True)
class RagSpeedConfig:
    """Model, texts and runs."""

    index: Path
    """Index that BM25 searches."""
    questions: Path
    """File of questions with answers."""
    out: Path
    """JSON file of the figures."""
    generator: str | None = None
    """Directory or hub name of a seq2seq; default: random weights."""
    shape: Literal["tiny", "small", "base", "large"] = "small"
    """Size of the random model."""
    device: str = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"
    batch: int = 8
    """Questions of a step."""
    passages: int = 5
    """Passages of a question."""
    beams: int = 4
    longest: int = 16
    """Tokens of a decoded answer, at most."""
    decoding_tokens: int = 120
    """Tokens of every pair that is decoded from."""
    steps: int = 5
    """Timed steps, after one that warms up."""


@dataclass(frozen=True)
class Texts:
    """Questions, their first answers, and the passages that BM25 finds for them."""

    questions: list[str]
    answers: list[str]
    passages: list[list["Passage"]]


def main(config: RagSpeedConfig) -> None:
    """Measure training steps of both marginals, then decoding."""
    import torch

    from ragqa.models.generation.limits import MAX_INPUT
    from ragqa.models.generation.rag import RagGenerator
    from ragqa.models.generation.search import SearchSettings
    from ragqa.models.generation.seq2seq import Seq2Seq
    from ragqa.models.pretrained import set_dropout
    from ragqa.objectives import IGNORED

    torch.manual_seed(0)
    texts = find_texts(config)
    words = [*texts.questions, *texts.answers, *(passage.titled for row in texts.passages for passage in row)]
    seq2seq = Seq2Seq.load(config.generator) if config.generator else make_random_bart(config.shape, words)
    set_dropout(seq2seq, 0.0)
    seq2seq.to(device=config.device, dtype=getattr(torch, config.precision))
    ours = RagGenerator(seq2seq, max_input=MAX_INPUT).train()
    inputs = ours.inputs(texts.questions, [row[: config.passages] for row in texts.passages]).to(config.device)
    labels = seq2seq.tokens.labels(texts.answers, 32).to(config.device)
    relevance = torch.randn(len(texts.questions), config.passages, device=config.device)
    names = ("device", "precision", "batch", "passages", "beams", "longest")
    figures: dict[str, Any] = {
        "model": config.generator or f"BART {config.shape}, random",
        "parameters": sum(parameter.numel() for parameter in seq2seq.parameters()),
        **{name: getattr(config, name) for name in names},
        "threads": torch.get_num_threads(),
        "training_inputs": describe_lengths(inputs.mask_NL),
        "training_answers": describe_lengths(labels != IGNORED),
    }
    marginals: tuple[Marginal, ...] = ("token", "sequence")
    for marginal in marginals:
        ours.marginal = marginal
        figures[f"step_{marginal}"] = compare_steps(ours, inputs, relevance, labels, config.steps)
    pairs = choose_long_passages(texts, config, ours.eval())
    ours.max_input = config.decoding_tokens
    inputs = ours.inputs(texts.questions, pairs).to(config.device)
    figures["decoding_inputs"] = describe_lengths(inputs.mask_NL)
    search = SearchSettings(config.beams, config.longest, shortest=2)
    figures["decode_thorough"] = compare_decoding(ours, inputs, relevance, search, config.steps)
    asked = f"the first {len(texts.questions)} of {config.questions.name}"
    report(config.out, figures, corpus=config.index.name, questions=asked)


def find_texts(config: RagSpeedConfig) -> Texts:
    """Return the first questions that have an answer, with four times as many passages as are read."""
    from ragqa.questions import read_questions
    from ragqa.retrieval.live import open_retriever
    from ragqa.retrieval.registry import RetrieverKind

    asked = [question for question in read_questions(config.questions) if question.answers][: config.batch]
    retriever = open_retriever(config.index, RetrieverKind.BM25)
    found = retriever.search([question.text for question in asked], 4 * config.passages)
    rows = [(q, hits) for q, hits in zip(asked, found, strict=True) if len(hits) >= config.passages]
    if not rows:
        raise BadInput(f"--passages {config.passages}: none of {config.questions}'s first questions finds so many")
    passages = [[hit.passage for hit in hits] for _, hits in rows]
    return Texts([q.text for q, _ in rows], [q.answers[0] for q, _ in rows], passages)


def choose_long_passages(texts: Texts, config: RagSpeedConfig, generator: "RagGenerator") -> list[list["Passage"]]:
    """Return the best passages of each question that make a pair of at least ``decoding_tokens`` tokens."""
    chosen = []
    for question, row in zip(texts.questions, texts.passages, strict=True):
        lengths = generator.inputs([question], [row]).mask_NL.sum(-1).tolist()
        long = [passage for passage, length in zip(row, lengths, strict=True) if length >= config.decoding_tokens]
        chosen.append(long[: config.passages])
        if len(chosen[-1]) < config.passages:
            raise BadInput(f"--decoding-tokens {config.decoding_tokens}: too few such passages for '{question}'")
    return chosen


def make_random_bart(shape: str, texts: list[str]) -> "Seq2Seq":
    """Return a BART of random weights, with byte pairs of ``texts`` filled up to the size of the vocabulary."""
    from tokenizers import ByteLevelBPETokenizer, processors
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    from ragqa.models.generation.seq2seq import Seq2Seq
    from ragqa.models.generation.tokenizer import Seq2SeqTokenizer

    layers, width, vocabulary = SHAPES[shape]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=vocabulary, special_tokens=special, show_progress=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_tokens([f"<unused {n}>" for n in range(vocabulary - tokenizer.get_vocab_size())])
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), special, strict=True))
    heads, halves = max(1, width // 64), ("encoder", "decoder")
    sizes = {f"{half}_{name}": n for half in halves for name, n in (("layers", layers), ("attention_heads", heads))}
    config = BartConfig(
        vocab_size=vocabulary, d_model=width, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, **sizes
    )
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **names)
    return Seq2Seq(BartForConditionalGeneration(config), Seq2SeqTokenizer(wrapped))


def make_peer(ours: "Seq2Seq", marginal: str, passages: int) -> Any:
    """Return transformers' RAG around a copy of the weights, with the attention that it uses by default."""
    from transformers import DPRConfig, DPRQuestionEncoder, RagSequenceForGeneration, RagTokenForGeneration

    classes = {"token": RagTokenForGeneration, "sequence": RagSequenceForGeneration}
    generator = copy.deepcopy(ours.model)
    generator.set_attn_implementation("sdpa")
    encoder = DPRQuestionEncoder(DPRConfig(vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    return classes[marginal](question_encoder=encoder, generator=generator, n_docs=passages).to(ours.model.device)


def compare_steps(
    ours: "RagGenerator", inputs: "Inputs", relevance_BK: "Tensor", labels_BT: "Tensor", steps: int
) -> dict[str, Any]:
    """Time training steps of both sides in turn.

    Raises:
        BadInput: the losses differ.
    """
    import torch

    from ragqa.models.inputs import Inputs
    from ragqa.objectives import IGNORED

    peer = make_peer(ours.seq2seq, ours.marginal, relevance_BK.shape[1]).train()
    rules, grow = ours.seq2seq.conventions, torch.nn.functional.pad
    updates = [torch.optim.AdamW(each.parameters(), lr=0.0, weight_decay=0.0) for each in (ours, peer.rag.generator)]
    start = torch.full_like(labels_BT[:, :1], rules.start)
    peer_labels_BT = torch.cat([start, labels_BT.masked_fill(labels_BT == IGNORED, rules.pad)], 1)

    def step(update: Any, compute_loss: Callable[[Any], Any]) -> float:
        update.zero_grad()
        loss = compute_loss(relevance_BK.clone().requires_grad_()).sum()
        loss.backward()
        update.step()
        return float(loss.detach())

    def peer_loss(given: Inputs, scores_BK: Any) -> Any:
        pairs = {"context_input_ids": given.ids_NL, "context_attention_mask": given.mask_NL}
        return peer(**pairs, doc_scores=scores_BK, labels=peer_labels_BT, n_docs=scores_BK.shape[1]).loss

    more = ours.max_input - inputs.ids_NL.shape[1]
    fixed = Inputs(grow(inputs.ids_NL, (0, more), value=rules.pad), grow(inputs.mask_NL, (0, more)))
    sides = {
        "ours": lambda: step(updates[0], lambda scores_BK: ours.nll(inputs, scores_BK, labels_BT)),
        "transformers": lambda: step(updates[1], lambda scores_BK: peer_loss(inputs, scores_BK)),
        f"transformers_{ours.max_input}": lambda: step(updates[1], lambda scores_BK: peer_loss(fixed, scores_BK)),
    }
    figures, losses = time_in_turn(sides, labels_BT.device, steps)
    tolerance = 1e-4 if ours.seq2seq.model.dtype == torch.float32 else 2e-2
    if any(abs(loss / losses["ours"] - 1) > tolerance for loss in losses.values()):
        raise BadInput(f"the losses are not equal: {losses}")
    return figures


def compare_decoding(
    ours: "RagGenerator", inputs: "Inputs", relevance_BK: "Tensor", search: Any, steps: int
) -> dict[str, Any]:
    """Time thorough decoding by both sides in turn.

    Raises:
        BadInput: in float32 the answers differ.
    """
    peer, pad = make_peer(ours.seq2seq, "sequence", relevance_BK.shape[1]).eval(), ours.seq2seq.conventions.pad
    options = {"num_beams": search.beams, "max_length": search.longest + 1, "min_length": search.shortest + 1}
    pairs: dict[str, Any] = {"context_input_ids": inputs.ids_NL, "context_attention_mask": inputs.mask_NL}
    pairs |= {"doc_scores": relevance_BK, "n_docs": relevance_BK.shape[1]}
    sides = {
        "ours": lambda: [row[0].ids for row in ours.generate(inputs, relevance_BK, search)],
        "transformers": lambda: peer.generate(**pairs, early_stopping=False, **options)[:, 1:].tolist(),
    }
    figures, answers = time_in_turn(sides, relevance_BK.device, steps)
    differ = sum(
        list(theirs[: len(own)]) != list(own) or any(token != pad for token in theirs[len(own) :])
        for own, theirs in zip(answers["ours"], answers["transformers"], strict=True)
    )
    if differ and relevance_BK.dtype == ours.seq2seq.model.dtype:  # float32: rounding changes no answer
        raise BadInput(f"transformers answers {differ} of {len(answers['ours'])} questions otherwise")
    lengths = [len(own) for own in answers["ours"]]
    described = {"tokens_mean": round(mean(lengths), 1), "tokens_longest": max(lengths), "otherwise": differ}
    return {**figures, "answers": described}


def time_in_turn(
    sides: Mapping[str, Callable[[], Any]], device: Any, steps: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the sides in turn, so that other work on the machine slows all of them.

    Returns:
        median seconds, peak memory and relative speed of each side, and the last results.
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
        name: {"seconds": round(median(seconds[name][1:]), 4), "peak_mb": measure_peak(work, device)}
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


def measure_peak(work: Callable[[], Any], device: Any) -> int:
    """Return the MB that ``work`` takes in addition to what is held before."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() // 2**20
        work()
        return torch.cuda.max_memory_allocated() // 2**20 - before
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory, or it would hide what is taken
    Path("/proc/self/clear_refs").write_text("5")  # restart the peak
    before = measure_memory()["rss_mb"]
    work()
    return measure_memory()["peak_rss_mb"] - before


def describe_lengths(mask_NL: "Tensor") -> dict[str, Any]:
    """Return number and lengths of texts in tokens."""
    lengths: list[int] = mask_NL.sum(-1).tolist()
    return {"texts": len(lengths), "tokens_mean": round(mean(lengths), 1), "tokens_longest": max(lengths)}


if __name__ == "__main__":
    with report_errors():
        main(parse_config(RagSpeedConfig, __doc__))
