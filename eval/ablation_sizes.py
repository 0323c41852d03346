"""How much the stages of the ablation do: what fits into some ten hours of 2 cores, and what a test has time for."""

from dataclasses import dataclass

from eval.stage_sizes import StageSizes


@dataclass(frozen=True, kw_only=True)
class Sizes(StageSizes):
    """How much each stage does. The defaults are for 2 cores, an encoder of 4 layers of width 256, 40,000 passages.

    They are reckoned, not tuned. Measured, compiled, on a core with AMX while the other one trains, too: the warm start
    7,400 wordpieces a second (median), 101 minutes with what else ran beside it, the reader's warm-up 49 minutes.
    """

    cloze_steps: int = 1000
    """Of the warm start."""
    cloze_batch: int = 128
    """A sentence has to be told from so many passages; ORQA has 4096. Gradient caching bounds the memory, but not the
    time: larger batches would leave few steps."""
    cloze_lr: float = 5e-4
    """ORQA: 1e-4 for BERT-base. Tried for 50 steps: the share of sentences that find their passage among 128 went from
    0.25 to 0.45, with 1e-4 to 0.41."""
    reader_steps: int = 1000
    """Of the warm-up of the reader, which all arms share. The masked language model it begins from makes nothing of a
    passage beside a text: of 203 masked wordpieces the loss was 7.7 beside none, 7.4 beside the very passage."""
    reader_batch: int = 64
    reader_lr: float = 5e-4
    """A quarter of what the masked language model was trained with. Tried with 64 texts a step: where half of the texts
    stood beside their own passage from the first step on, and it held half of these, the loss stood at 6.9 nats after
    150 steps (1e-3); beside their own whole passage it fell from 7.1 to 5.3."""
    steps: int = 600
    """Of pretraining; REALM has 200,000."""
    batch: int = 12
    """Texts a step, each read beside k passages: 60 pairs. REALM has 512; here steps are dearer than noise."""
    k: int = 5
    """Passages of a text, the null passage among them; REALM has 8. Tried with 8 passages and 8 texts, the retriever at
    1e-4: after 242 steps of it the passages that hold a masked span, of those retrieved 0.29, had 0.35 of the weight
    (before: 0.30 for 0.28), so it learns, and needs more texts rather than more passages of each."""
    spans: int = 3
    """Salient spans that are masked in a text; REALM masks one. Three times the signal for hardly more time, and as
    many wordpieces as the other maskings take."""
    lr: float = 3e-4
    """Of the reader: between REALM's 3e-5 for BERT-base and the 1e-3 of the closed world."""
    retriever_lr: float = 1e-4
    """A third of the reader's: in the closed world a retriever that learns as fast as its reader collapses."""
    frozen: int = 200
    """Steps before the retriever learns: the reader gets used to what is retrieved. Tried with 100, and 2e-4 for the
    retriever: within 200 steps of it the null passage gained weight (0.001 to 0.3), and all passages became alike
    (entropy 0.84 to 0.98)."""
    refresh_every: int = 150
    """Steps. An index of 40,000 passages costs as much as some hundred steps; with REALM's 500 there would be none."""
    dpr_steps: int = 1000
    dpr_batch: int = 64
    """Questions a step, each beside its passage and a hard negative of BM25."""
    dpr_lr: float = 3e-4
    """DPR: 2e-5 for BERT-base."""
    tune_steps: int = 2000
    """Of fine-tuning, nearly two epochs of the 9,128 questions that the corpus answers; ORQA and REALM have two
    of NQ's 79,168. Questions with nothing right among the passages that are read cost hardly any time."""
    tune_batch: int = 8
    tune_lr: float = 2e-4
    """Of the reader; ORQA and REALM: 1e-5 for BERT-base."""
    tune_retriever_lr: float = 5e-5
    beam: int = 5000
    """Passages that the tower of questions learns to tell apart, as in ORQA and REALM: here every eighth."""
    read: int = 5
    """Passages that are read, as in ORQA and REALM."""
    width: int = 128
    """Of the vectors, as in ORQA and REALM."""
    hidden: int = 256
    """Of the layer that scores spans: as in ORQA and REALM."""
    max_text: int = 64
    """Wordpieces of a masked text, and of the sentence of inverse cloze."""
    max_block: int = 160
    """The same of a passage: 100 words and a title are rarely more, and every wordpiece costs."""
    sample: int = 500
    """Questions asked while something is trained."""
    evaluations: int = 5
    """How often they are asked; DPR asks at its begin and end only, as it has to embed all passages for that."""
    minilm_share: float = 0.25
    """Share of the steps of the warm start where it begins from MiniLM, whose steps take some four times as long."""
    recall: int | None = None
    """Questions on which recall is measured; None for all that the corpus's folder holds."""
    compile: bool = True
    """The encoders (docs/decisions.md)."""


SMOKE = Sizes(
    cloze_steps=3,
    cloze_batch=8,
    reader_steps=3,
    reader_batch=4,
    steps=4,
    batch=2,
    k=3,
    frozen=2,
    refresh_every=3,
    dpr_steps=3,
    dpr_batch=4,
    tune_steps=3,
    tune_batch=2,
    beam=20,
    read=2,
    width=8,
    hidden=16,
    max_text=32,
    max_block=64,
    sample=8,
    evaluations=1,
    saves=2,
    limit=8,
    recall=20,
    compile=False,
)
"""A few steps of everything: does it run from end to end?"""
