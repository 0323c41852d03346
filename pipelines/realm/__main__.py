r"""REALM: retrieval-augmented language model pretraining (Guu et al. 2020), to a pipeline that answers.

    python -m pipelines.realm --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \
        --out runs/realm
    ragqa ask --pipeline runs/realm/system/pipeline "…"

As ORQA, but between the inverse cloze task and fine-tuning, retriever and reader are pretrained together: what is
masked in a text has to be found in the passages. An interrupted run continues; finished stages are not repeated.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.common.command import run_recipe
from pipelines.common.stages import fill_unset, run_stage
from pipelines.orqa.config import CLOZE, TUNE, FineTuneConfig, InverseClozeConfig
from pipelines.realm.config import PRETRAIN, PretrainConfig
from ragqa.errors import BadInput
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND


@dataclass(frozen=True, kw_only=True)
class RealmConfig:
    """Settings of REALM; those of its stages are the paper's but for when, and how fast, the retriever learns."""

    corpus: Path
    """Index directory of the passages Z."""
    encoder: Path
    """Directory of the masked language model that towers and reader begin from."""
    reader: Path | None = None
    """Directory of another model that the reader begins from: pipelines.realm.reader_warmup makes one."""
    questions: Path
    """File of questions with answers."""
    out: Path
    """Directory of the stages: cloze, pretrain, tune, and the finished system; stages found there are not repeated."""
    texts: Path | None = None
    """Index directory of the texts X that are masked; by default the passages themselves."""
    dev: Path | None = None
    """File of held-out questions: recall is measured on them, the best weights are kept, confidence is calibrated."""
    regex: bool = False
    """Treat answers as regular expressions (CuratedTREC)."""
    kind: str = DEFAULT_KIND
    """Kind of the indexes: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of all that is random."""
    cloze: InverseClozeConfig = CLOZE
    """Inverse cloze task; what is given here comes before what is given above."""
    pretrain: PretrainConfig = PRETRAIN
    """Pretraining; what is given here comes before what is given above."""
    tune: FineTuneConfig = TUNE
    """Fine-tuning; what is given here comes before what is given above."""


def plan_stages(config: RealmConfig) -> tuple[InverseClozeConfig, PretrainConfig, FineTuneConfig]:
    """Return the settings of the stages, each of which begins from the result of the one before it."""
    common = {"corpus": config.corpus, "device": config.device, "seed": config.seed}
    common |= {"dev": config.dev, "regex": config.regex}
    cloze = fill_unset(config.cloze, encoder=config.encoder, out=config.out / "cloze", **common)
    common["kind"] = config.kind
    pretraining = fill_unset(
        config.pretrain,
        retriever=cloze.out / "model",
        encoder=config.reader or config.encoder,
        texts=config.texts,
        out=config.out / "pretrain",
        **common,
    )
    tuning = fill_unset(
        config.tune,
        retriever=pretraining.out / "model",
        encoder=pretraining.out / "reader",
        questions=config.questions,
        out=config.out / "tune",
        **common,
    )
    return cloze, pretraining, tuning


def main(config: RealmConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train whatever is not trained yet; return the pipeline directory. Raises as the stages do."""
    # Here, so that --help needs no torch.
    from pipelines.common import assemble
    from pipelines.common.processes import train_in_processes
    from pipelines.orqa import fine_tune, inverse_cloze
    from pipelines.realm import pretrain
    from ragqa.runtime.tokens import TextTokenizer

    cloze, pretraining, tuning = plan_stages(config)
    reader = config.reader or config.encoder
    if TextTokenizer(reader).fingerprint != TextTokenizer(config.encoder).fingerprint:
        raise BadInput(f"{reader} and {config.encoder} have different tokenizers: begin both from one encoder")
    inverse_cloze.check_inputs(cloze)
    pretrain.check_inputs(pretraining)
    fine_tune.check_inputs(tuning, notify)
    train = partial(partial, train_in_processes, progress=progress, notify=notify)
    # A sentence finds the passage that it was taken from: without that the reader would learn to ignore retrieval.
    run_stage(cloze, train(inverse_cloze.main), notify)
    # What is masked in a text is found in the passages; the index follows the weights.
    run_stage(pretraining, train(pretrain.main), notify)
    # The index is made once more; the question tower learns with a reader where answers stand.
    run_stage(tuning, train(fine_tune.main), notify)
    system = fine_tune.plan_pipeline(tuning, config.out / "system")
    return run_stage(system, partial(assemble.main, progress=progress, notify=notify), notify)


if __name__ == "__main__":
    run_recipe("pipelines.realm", RealmConfig, __doc__, main, in_processes=False)
