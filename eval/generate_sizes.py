"""How much the stages of the table of generators do: for a few core-hours, and for a test."""

from dataclasses import dataclass

from eval.stage_sizes import StageSizes


@dataclass(frozen=True, kw_only=True)
class Sizes(StageSizes):
    """How much each stage does. The defaults are for two cores, some four hours of one in all."""

    decoder_layers: int = 1
    fitted: int = 800
    """Questions to which the decoder's attention is fitted."""
    start_steps: int = 2400
    """Of the generator's start beside gold passages."""
    start_lr: float = 1e-3
    """Of the decoder there; the encoder has a tenth."""
    steps: int = 300
    """Of each generator's own training after that. The closed book has as many more as the start took."""
    batch: int = 16
    """Questions a step."""
    k: int = 3
    """Passages of a question in training; RAG has 5 or 10. Every one of them costs as much as a question more."""
    read: int = 4
    """Passages of a question that is asked for the table; RAG reads 15 or 50, FiD 100."""
    lr: float = 1e-4
    """Of the generators; RAG: 3e-5 for BART-large."""
    retriever_lr: float = 2e-5
    """Of the tower of questions, in RAG."""
    frozen: float = 0.0
    """Share of RAG's steps before its tower of questions learns: none, as in the paper, for the start reads already."""
    scale: float = 20.0
    """Of two vectors that point the same way, the inner product: a cosine leaves p(z|x) all but even, and is what
    all-MiniLM-L6-v2 was trained with times this."""
    max_input: int = 192
    """Tokens of question and passage: 100 words, a title and a question are rarely more."""
    max_answer: int = 20
    sample: int = 200
    """Held-out questions that choose the weights."""
    calibrate: int = 200
    """Others on which confidence is fitted."""
    evaluations: int = 3
    """How often those that choose are asked, but for the first time."""
    asked: int = 8
    """Questions of the test sets that are asked together."""


SMOKE = Sizes(
    fitted=8,
    start_steps=3,
    steps=3,
    batch=2,
    k=2,
    read=2,
    max_input=64,
    max_answer=4,
    sample=4,
    calibrate=4,
    evaluations=1,
    saves=2,
    limit=4,
)
"""A few steps of everything: does it run from end to end?"""
