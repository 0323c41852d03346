"""How much the stages of the table of generators do: for a few core-hours, and for a test."""

from dataclasses import dataclass

from eval.stage_sizes import StageSizes


@dataclass(frozen=True, kw_only=True)
class Sizes(StageSizes):
    """How much each stage does. The defaults are for a CPU and all-MiniLM-L6-v2; they are reckoned, not tuned.

    Seconds of one core of an EPYC, measured for a few steps: denoising 1.7 a step, reading 1.6, RAG 4.0, FiD 4.4, the
    closed book 0.6; 10 to 15 passages embedded a second; a question of a test set 0.2, with the span reader 0.1.
    """

    layers: int = 3
    """Of the encoder that the generator begins from, the first ones; more than it has are all of them."""
    decoder_layers: int = 1
    objective: str = "infilling"
    """Of the generator's start. BART's, where the whole text is written: most of it is copied, and to copy is what an
    answer out of a passage needs; T5's spans teach to guess what stands nowhere."""
    start_steps: int = 600
    start_batch: int = 16
    start_text: int = 64
    """Tokens of a text."""
    start_lr: float = 1e-3
    """Of a decoder that begins without attention to what is read."""
    read_steps: int = 1500
    """Of reading, with which RAG-Token, RAG-Sequence and FiD begin: questions beside the one passage that is found
    first. It costs a third of a step of an arm, and most of SQuAD's answers stand there; 0 leaves it out. The closed
    book has as many steps more of its own task."""
    steps: int = 400
    """Of each generator's own training after that."""
    tune_steps: int = 900
    """Of the span reader, which begins from no start: as many passages of questions as a generator is shown."""
    batch: int = 16
    """Questions a step."""
    k: int = 3
    """Passages of a question in training; RAG has 5 or 10. Every one of them costs as much as a question more."""
    read: int = 5
    """Passages of a question that is asked for the table; RAG reads 15 or 50, FiD 100."""
    lr: float = 3e-4
    """Of the generators and the span reader; RAG: 3e-5 for BART-large. What ragqa's own reader was trained with."""
    retriever_lr: float = 2e-5
    """Of the tower of questions, in RAG and in the span reader's fine-tuning."""
    frozen: float = 0.5
    """Share of RAG's steps before its tower of questions learns: the generator has to read before it can teach."""
    beam: int = 1000
    """Passages that the span reader's tower of questions learns to tell apart."""
    scale: float = 20.0
    """Of two vectors that point the same way, the inner product: a cosine leaves p(z|x) all but even, and is what
    all-MiniLM-L6-v2 was trained with times this."""
    max_input: int = 192
    """Tokens of question and passage: 100 words, a title and a question are rarely more."""
    max_answer: int = 20
    sample: int = 200
    """Held-out questions that choose the weights."""
    calibrate: int = 400
    """Others on which confidence is fitted."""
    evaluations: int = 3
    """How often those that choose are asked, but for the first time."""
    asked: int = 8
    """Questions of the test sets that are asked together."""


SMOKE = Sizes(
    layers=1,
    start_steps=3,
    start_batch=2,
    start_text=32,
    read_steps=2,
    steps=3,
    tune_steps=3,
    batch=2,
    k=2,
    read=2,
    beam=20,
    max_input=64,
    max_answer=4,
    sample=4,
    calibrate=4,
    evaluations=1,
    saves=2,
    limit=4,
)
"""A few steps of everything: does it run from end to end?"""
