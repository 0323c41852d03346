"""What RAG costs here and in transformers' own RAG classes: a training step, and thorough decoding.

    python -m eval.bench.rag_speed --index squad.index --questions test.jsonl --out docs/measurements/rag_speed.json

One run, the same weights in the same precision, the same texts: questions with the passages that BM25 finds. A step is
forward, loss, backward and an update by AdamW, without dropout; its rate and decay are 0, so that the losses of all
steps must be equal. Transformers is given inputs padded to the longest of the batch; a row beside it pads as its
retriever does, to RAG's 300 tokens. Thorough decoding reads pairs that are all cut to one length, because transformers'
lets beams look at padding; the answers must be equal (in bfloat16, where beams of random weights are as good as each
other, it is said how many are not).

Without ``--generator`` the weights are random, in a BART of the ``--shape`` named, whose vocabulary is BART's in size.
"""

import argparse
import copy
import ctypes
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DPRConfig,
    DPRQuestionEncoder,
    PreTrainedTokenizerFast,
    RagSequenceForGeneration,
    RagTokenForGeneration,
)

from eval.bench.process import memory
from eval.bench.record import report
from ragqa.models.generation.decoding import Candidate
from ragqa.models.generation.limits import MAX_INPUT
from ragqa.models.generation.rag import Marginal, RagGenerator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.inputs import Inputs
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.questions import read_questions
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.types import Passage

SHAPES = {"tiny": (2, 64, 2_000), "small": (4, 256, 50_265), "base": (6, 768, 50_265), "large": (12, 1024, 50_265)}
"""Layers of each half, width, vocabulary; base and large are BART's."""
CLASSES = {"token": RagTokenForGeneration, "sequence": RagSequenceForGeneration}


def random_bart(shape: str, texts: list[str]) -> Seq2Seq:
    """Random weights, and a tokenizer of byte pairs of the texts with as many pieces as there are embeddings."""
    layers, width, vocabulary = SHAPES[shape]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.add_tokens([f"<unused {n}>" for n in range(vocabulary - tokenizer.get_vocab_size())])
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), special, strict=True))
    heads, halves = max(1, width // 64), ("encoder", "decoder")
    sizes = {f"{half}_{name}": n for half in halves for name, n in (("layers", layers), ("attention_heads", heads))}
    config = BartConfig(
        vocab_size=vocabulary, d_model=width, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, **sizes
    )
    return Seq2Seq(
        BartForConditionalGeneration(config),
        Seq2SeqTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)),
    )


def their_model(ours: Seq2Seq, marginal: Marginal, passages: int) -> Any:
    """Transformers' RAG around a copy of the weights, with the attention that it takes by itself."""
    generator = copy.deepcopy(ours.model)
    generator.set_attn_implementation("sdpa")
    asked = DPRQuestionEncoder(DPRConfig(vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    return CLASSES[marginal](question_encoder=asked, generator=generator, n_docs=passages).to(ours.model.device)


class Meter:
    """Seconds of something that is done again and again; peak memory of it once, which would cost it time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: list[float] = []
        self.peak_mb = 0

    def __call__(self, work: Callable[[], Any]) -> Any:
        """Do ``work`` against the clock."""
        self._wait()
        began = time.perf_counter()
        result = work()
        self._wait()
        self.seconds.append(time.perf_counter() - began)
        return result

    def weigh(self, work: Callable[[], Any]) -> None:
        """Do ``work``; what it takes beside what was there before is its memory."""
        before = self._reset()
        work()
        self.peak_mb = self._peak() - before

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _reset(self) -> int:
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return torch.cuda.memory_allocated() // 2**20
        ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back, or it would hide what is taken
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        return memory()["rss_mb"]

    def _peak(self) -> int:
        on_gpu = self._device.type == "cuda"
        return torch.cuda.max_memory_allocated() // 2**20 if on_gpu else memory()["peak_rss_mb"]

    def figures(self) -> dict[str, Any]:
        """Median seconds, the first time left out, and memory."""
        return {"seconds": round(median(self.seconds[1:]), 4), "peak_mb": self.peak_mb}


def padded(inputs: Inputs, length: int, pad: int) -> Inputs:
    """The same, padded to ``length``."""
    more = length - inputs.ids_NL.shape[1]
    grow = torch.nn.functional.pad
    return Inputs(grow(inputs.ids_NL, (0, more), value=pad), grow(inputs.mask_NL, (0, more)))


def train(ours: RagGenerator, inputs: Inputs, relevance_BK: Tensor, labels_BT: Tensor, steps: int) -> dict[str, Any]:
    """Steps of both, in turn: what else the machine does hits both alike."""
    theirs = their_model(ours.seq2seq, ours.marginal, relevance_BK.shape[1]).train()
    rules = ours.seq2seq.conventions
    updates = [torch.optim.AdamW(each.parameters(), lr=0.0, weight_decay=0.0) for each in (ours, theirs.rag.generator)]
    start = torch.full_like(labels_BT[:, :1], rules.start)
    started_BT = torch.cat([start, labels_BT.masked_fill(labels_BT == IGNORED, rules.pad)], 1)

    def own() -> Tensor:
        updates[0].zero_grad()
        loss = ours.nll(inputs, relevance_BK.clone().requires_grad_(), labels_BT).sum()
        loss.backward()
        updates[0].step()
        return loss.detach()

    def other(given: Inputs) -> Callable[[], Tensor]:
        def step() -> Tensor:
            updates[1].zero_grad()
            pairs = {"context_input_ids": given.ids_NL, "context_attention_mask": given.mask_NL}
            scores = relevance_BK.clone().requires_grad_()
            loss = theirs(**pairs, doc_scores=scores, labels=started_BT, n_docs=scores.shape[1]).loss.sum()
            loss.backward()
            updates[1].step()
            return loss.detach()

        return step

    fixed = padded(inputs, ours.max_input, rules.pad)
    kinds = {"ours": own, "transformers": other(inputs), f"transformers_{ours.max_input}": other(fixed)}
    meters = {name: Meter(labels_BT.device) for name in kinds}
    for _ in range(steps + 1):
        losses = {name: float(meters[name](step)) for name, step in kinds.items()}
        tolerance = 1e-4 if ours.seq2seq.model.dtype == torch.float32 else 2e-2
        if any(abs(loss / losses["ours"] - 1) > tolerance for loss in losses.values()):
            raise SystemExit(f"the losses are not equal: {losses}")
    return rows(meters, kinds)


def decode(
    ours: RagGenerator, inputs: Inputs, relevance_BK: Tensor, search: SearchSettings, steps: int
) -> dict[str, Any]:
    """Thorough decoding by both, in turn."""
    theirs = their_model(ours.seq2seq, "sequence", relevance_BK.shape[1]).eval()
    rules = ours.seq2seq.conventions
    pairs = {"context_input_ids": inputs.ids_NL, "context_attention_mask": inputs.mask_NL}
    options = {"num_beams": search.beams, "max_length": search.longest + 1, "min_length": search.shortest + 1}

    def other() -> Tensor:
        said: Tensor = theirs.generate(
            **pairs, doc_scores=relevance_BK, n_docs=relevance_BK.shape[1], early_stopping=False, **options
        )
        return said

    kinds: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours.generate(inputs, relevance_BK, search),
        "transformers": other,
    }
    meters = {name: Meter(relevance_BK.device) for name in kinds}
    for _ in range(steps + 1):
        found = {name: meters[name](work) for name, work in kinds.items()}
        differ = otherwise(found["ours"], found["transformers"][:, 1:].tolist(), rules.pad)
        if differ and relevance_BK.dtype == ours.seq2seq.model.dtype:  # float32: nothing is rounded enough
            raise SystemExit(f"{differ} of {len(found['ours'])} questions are answered otherwise by transformers")
    length = [len(candidates[0].ids) for candidates in found["ours"]]
    answers = {"tokens_mean": round(mean(length), 1), "tokens_longest": max(length), "otherwise": differ}
    return rows(meters, kinds) | {"answers": answers}


def otherwise(ours: list[list[Candidate]], theirs: list[list[int]], pad: int) -> int:
    """How many questions are answered otherwise by transformers."""
    ids = [list(row[0].ids) for row in ours]
    return sum(
        other[: len(own)] != own or any(token != pad for token in other[len(own) :])
        for own, other in zip(ids, theirs, strict=True)
    )


def rows(meters: dict[str, Meter], kinds: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The figures of each, and how many times as fast ours is as each other."""
    for name, work in kinds.items():
        meters[name].weigh(work)
    figures: dict[str, Any] = {name: meter.figures() for name, meter in meters.items()}
    for name, row in figures.items():
        if name != "ours":
            row["ours_is_times_as_fast"] = round(row["seconds"] / figures["ours"]["seconds"], 2)
    return figures


def lengths(inside_NL: Tensor) -> dict[str, Any]:
    """How long texts are, in tokens, of which those that count are true."""
    length: list[int] = inside_NL.sum(-1).tolist()
    return {"texts": len(length), "tokens_mean": round(mean(length), 1), "tokens_longest": max(length)}


@dataclass(frozen=True)
class Texts:
    """Questions, their first answers, and what BM25 finds for them."""

    questions: list[str]
    answers: list[str]
    passages: list[list[Passage]]

    def first(self, count: int) -> list[list[Passage]]:
        """The best ``count`` of each question."""
        return [row[:count] for row in self.passages]

    def long(self, count: int, tokens: int, generator: RagGenerator) -> list[list[Passage]]:
        """The best of each question among those that make a pair of ``tokens`` or more."""
        found = []
        for question, row in zip(self.questions, self.passages, strict=True):
            length = generator.inputs([question], [row]).mask_NL.sum(-1).tolist()
            found.append([each for each, size in zip(row, length, strict=True) if size >= tokens][:count])
            if len(found[-1]) < count:
                raise SystemExit(f"'{question}': too few passages of {tokens} tokens; say less with --decoding-tokens")
        return found


def texts(args: argparse.Namespace) -> Texts:
    """The first questions that have an answer, with four times as many passages as are read."""
    asked = [question for question in read_questions(args.questions) if question.answers][: args.batch]
    found = open_retriever(args.index, RetrieverKind.BM25).search(
        [question.text for question in asked], 4 * args.passages
    )
    kept = [(q.text, q.answers[0], row) for q, row in zip(asked, found, strict=True) if len(row) >= args.passages]
    if not kept:
        raise SystemExit(
            f"none of the first questions of {args.questions} finds {args.passages} passages: ask for fewer"
        )
    return Texts([q for q, _, _ in kept], [a for _, a, _ in kept], [[hit.passage for hit in row] for _, _, row in kept])


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    for name in ("--index", "--questions", "--out"):
        add(name, type=Path, required=True)
    add("--generator", help="directory or hub name of a seq2seq; without it, random weights")
    add("--shape", choices=SHAPES, default="small")
    add("--device", default="cpu")
    add("--precision", choices=("float32", "bfloat16"), default="float32")
    add("--batch", type=int, default=8, help="questions (default: 8)")
    add("--passages", type=int, default=5, help="of a question (default: 5)")
    add("--beams", type=int, default=4)
    add("--longest", type=int, default=16, help="tokens of an answer that is decoded (default: 16)")
    add("--decoding-tokens", type=int, default=120, help="of every pair that is decoded from (default: 120)")
    add("--steps", type=int, default=5, help="of each kind that are timed, after one that is not (default: 5)")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    found = texts(args)
    every = [*found.questions, *found.answers, *(each.titled for row in found.passages for each in row)]
    seq2seq = Seq2Seq.load(args.generator) if args.generator else random_bart(args.shape, every)
    set_dropout(seq2seq, 0.0)
    seq2seq.to(device=args.device, dtype=getattr(torch, args.precision))
    ours = RagGenerator(seq2seq, max_input=MAX_INPUT).train()
    inputs = ours.inputs(found.questions, found.first(args.passages)).to(args.device)
    labels = seq2seq.tokens.labels(found.answers, 32).to(args.device)
    relevance = torch.randn(len(found.questions), args.passages, device=args.device)
    figures: dict[str, Any] = {
        "model": args.generator or f"BART {args.shape}, random",
        "parameters": sum(each.numel() for each in seq2seq.parameters()),
        **{name: getattr(args, name) for name in ("device", "precision", "batch", "passages", "beams", "longest")},
        "threads": torch.get_num_threads(),
        "training_inputs": lengths(inputs.mask_NL),
        "training_answers": lengths(labels != IGNORED),
    }
    marginals: tuple[Marginal, Marginal] = ("token", "sequence")
    for marginal in marginals:
        ours.marginal = marginal
        figures[f"step_{marginal}"] = train(ours, inputs, relevance, labels, args.steps)
    ours.marginal, passages = "sequence", found.long(args.passages, args.decoding_tokens, ours.eval())
    ours.max_input = args.decoding_tokens
    inputs = ours.inputs(found.questions, passages).to(args.device)
    search = SearchSettings(args.beams, args.longest, shortest=2)
    figures["decoding_inputs"] = lengths(inputs.mask_NL)
    figures["decode_thorough"] = decode(ours, inputs, relevance, search, args.steps)
    report(
        args.out,
        figures,
        corpus=args.index.name,
        questions=f"the first {len(found.questions)} of {args.questions.name}",
    )


if __name__ == "__main__":
    main()
