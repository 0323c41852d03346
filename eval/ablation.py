"""The arms of the ablation on real text, and the settings of the stages that each of them is made of.

REALM's ablations (Guu et al. 2020, Table 2), and the rows to set beside them: what is learnt without its pretraining
(inverse cloze alone, ORQA), with supervision (DPR), or not at all (BM25, MiniLM).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eval.ablation_corpus import INDEX, QUESTIONS
from eval.ablation_questions import DEV, RECALL, TRAIN
from eval.ablation_sizes import Sizes
from pipelines.dpr.train import DprConfig
from pipelines.orqa.fine_tune import FineTuneConfig
from pipelines.orqa.inverse_cloze import WarmStartConfig
from pipelines.realm.pretrain import PretrainConfig
from pipelines.realm.reader_warmup import WarmReaderConfig
from ragqa.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A row of the table."""

    title: str
    learns: Literal["nothing", "cloze", "dpr", "realm"]
    """What it is trained by before it is asked."""
    after_cloze: bool = False
    """DPR that begins from the warm start, not from the encoder."""
    minilm: bool = False
    """The towers begin from MiniLM."""
    masking: str = "salient"
    null: bool = True
    refreshed: bool = True
    answers: bool = False
    """It is fine-tuned, and asked for answers, too."""
    note: str = ""
    """What a reader of the row must know."""


SEEN = "all-MiniLM-L6-v2 was trained on pairs from NQ's and SQuAD's train splits: not zero-shot"
ARMS = {
    "random": Arm(title="passages drawn at random", learns="nothing"),
    "bm25": Arm(title="BM25", learns="nothing"),
    "minilm": Arm(
        title="all-MiniLM-L6-v2, untouched",
        learns="nothing",
        minilm=True,
        note=f"{SEEN}; its weights in 8 bits, as ragqa ships them",
    ),
    "orqa": Arm(title="inverse cloze only (ORQA)", learns="cloze", answers=True),
    "dpr": Arm(
        title="DPR",
        learns="dpr",
        answers=True,
        note="supervised: trained on NQ questions before it is asked; its retriever stays as it is in fine-tuning",
    ),
    "full": Arm(title="REALM, full", learns="realm", answers=True),
    "stale": Arm(title="REALM, index never refreshed", learns="realm", refreshed=False, answers=True),
    "no-null": Arm(title="REALM, no null document", learns="realm", null=False),
    "spans": Arm(title="REALM, random spans masked", learns="realm", masking="spans"),
    "uniform": Arm(title="REALM, random tokens masked", learns="realm", masking="uniform"),
    "dpr-cloze": Arm(
        title="inverse cloze, then DPR",
        learns="dpr",
        after_cloze=True,
        note="supervised: trained on NQ questions before it is asked",
    ),
    "from-minilm": Arm(title="REALM, towers from MiniLM", learns="realm", minilm=True, note=SEEN),
}
"""By name, the small ones first."""
USUAL = [name for name in ARMS if name not in ("dpr-cloze", "from-minilm")]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where everything lies."""

    work: Path
    """A folder for each arm, and ``cloze``, which they share."""
    corpus: Path
    """What ``eval.ablation_corpus`` made."""
    encoder: Path
    """The masked language model, pretrained by plain masked LM, that everything begins from."""
    data: Path
    """Folder of the data sets."""
    minilm: Path | None = None
    """Torch weights of all-MiniLM-L6-v2, for the arm that begins from them."""
    device: str = "cpu"

    @property
    def index(self) -> Path:
        """Index directory of the passages."""
        return self.corpus / INDEX

    def questions(self, name: str) -> Path:
        """recall, dev or train."""
        return self.corpus / QUESTIONS / {"recall": RECALL, "dev": DEV, "train": TRAIN}[name]

    def arm(self, name: str) -> Path:
        """Folder of an arm."""
        return self.work / name

    def begins_from(self, arm: Arm) -> Path:
        """The encoder of an arm's towers; raises BadInput where MiniLM is needed and not given."""
        if not arm.minilm:
            return self.encoder
        if self.minilm is None:
            raise BadInput(f"{arm.title}: give the folder of MiniLM's torch weights as --minilm")
        return self.minilm


def cloze(places: Places, sizes: Sizes, arm: Arm) -> WarmStartConfig:
    """The warm start of an arm: one for all that begin from the same encoder.

    Mean pooling and small inner products at first: with [CLS] and a gain of 1 small towers learnt nothing in the
    closed world (docs/decisions.md). One tower for both sides was better there, too, and has half of the weights.
    """
    steps = max(1, round(sizes.cloze_steps * (sizes.minilm_share if arm.minilm else 1)))
    return WarmStartConfig(
        corpus=places.index,
        encoder=places.begins_from(arm),
        out=places.work / ("cloze-minilm" if arm.minilm else "cloze"),
        steps=steps,
        batch=sizes.cloze_batch,
        chunk=sizes.cloze_batch,  # at once: gradient caching would compute all of it twice
        lr=sizes.cloze_lr,
        warmup=sizes.warm(steps),
        dropout=0.0,
        width=sizes.width,
        pooling="mean",
        gain=sizes.width**-0.25,
        shared=True,
        max_query=sizes.max_text,
        max_block=sizes.max_block,
        save_every=sizes.every(steps, sizes.saves),
        compile=sizes.compile,
        device=places.device,
        seed=sizes.seed,
    )


def reading(places: Places, sizes: Sizes) -> WarmReaderConfig:
    """The warm-up of the reader, one for all arms: REALM's language model and every reader of answers begin from it."""
    return WarmReaderConfig(
        corpus=places.index,
        encoder=places.encoder,
        out=places.work / "reading",
        steps=sizes.reader_steps,
        batch=sizes.reader_batch,
        lr=sizes.reader_lr,
        warmup=sizes.warm(sizes.reader_steps),
        dropout=0.0,
        spans=sizes.spans,
        max_text=sizes.max_text,
        max_block=sizes.max_block,
        save_every=sizes.every(sizes.reader_steps, sizes.saves),
        compile=sizes.compile,
        device=places.device,
        seed=sizes.seed,
    )


def pretraining(places: Places, sizes: Sizes, name: str) -> PretrainConfig:
    """REALM's pretraining of an arm; without the null document as many passages are retrieved as with it."""
    arm = ARMS[name]
    return PretrainConfig(
        corpus=places.index,
        encoder=reading(places, sizes).out / "model",
        retriever=cloze(places, sizes, arm).out / "model",
        out=places.arm(name) / "pretrain",
        steps=sizes.steps,
        batch=sizes.batch,
        k=sizes.k if arm.null else sizes.k - 1,
        null=arm.null,
        masking=arm.masking,
        spans=sizes.spans,
        lr=sizes.lr,
        retriever_lr=sizes.retriever_lr,
        frozen=sizes.frozen,
        warmup=sizes.warm(sizes.steps),
        dropout=0.0,
        refresh_every=sizes.refresh_every if arm.refreshed else None,
        max_text=sizes.max_text,
        max_block=sizes.max_block,
        questions=places.questions("dev"),
        sample=sizes.sample,
        eval_every=sizes.every(sizes.steps, sizes.evaluations),
        save_every=sizes.every(sizes.steps, sizes.saves),
        compile=sizes.compile,
        device=places.device,
        seed=sizes.seed,
    )


def supervised(places: Places, sizes: Sizes, name: str, start: Path) -> DprConfig:
    """DPR of an arm, on NQ's training questions, with QED's paragraphs as the gold passages of theirs.

    Of gold passages only those that the corpus has are positives: others would be told by how they are set.
    """
    return DprConfig(
        corpus=places.index,
        retriever=start,
        out=places.arm(name) / "dpr",
        questions=(places.questions("train"),),
        corpus_only=True,
        dev=places.questions("dev"),
        sample=sizes.sample,
        steps=sizes.dpr_steps,
        batch=sizes.dpr_batch,
        chunk=2 * sizes.dpr_batch,  # each question's passage and a hard negative
        lr=sizes.dpr_lr,
        warmup=sizes.warm(sizes.dpr_steps),
        dropout=0.0,
        max_query=sizes.max_text,
        max_block=sizes.max_block,
        eval_every=sizes.dpr_steps,
        save_every=sizes.every(sizes.dpr_steps, sizes.saves),
        no_export=True,
        compile=sizes.compile,
        device=places.device,
        seed=sizes.seed,
    )


def tuning(places: Places, sizes: Sizes, name: str, retriever: Path) -> FineTuneConfig:
    """Fine-tuning of an arm: REALM's reader begins from the language model that it pretrained, others where that began.

    DPR's retriever is trained already, and its reader apart from it (Karpukhin et al. 2020, section 6.1).
    """
    arm = ARMS[name]
    warm = reading(places, sizes).out / "model"
    begins = pretraining(places, sizes, name).out / "reader" if arm.learns == "realm" else warm
    return FineTuneConfig(
        corpus=places.index,
        retriever=retriever,
        encoder=begins,
        questions=places.questions("train"),
        dev=places.questions("dev"),
        sample=sizes.sample,
        out=places.arm(name) / "tune",
        steps=sizes.tune_steps,
        batch=sizes.tune_batch,
        beam=sizes.beam,
        read=sizes.read,
        max_input=sizes.max_block + 32,
        hidden=sizes.hidden,
        freeze_retriever=arm.learns == "dpr",
        lr=sizes.tune_lr,
        retriever_lr=sizes.tune_retriever_lr,
        warmup=sizes.warm(sizes.tune_steps),
        dropout=0.0,
        eval_every=sizes.every(sizes.tune_steps, sizes.evaluations),
        save_every=sizes.every(sizes.tune_steps, sizes.saves),
        compile=sizes.compile,
        device=places.device,
        seed=sizes.seed,
    )
