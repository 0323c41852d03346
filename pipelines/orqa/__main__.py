r"""ORQA: open-retrieval question answering (Lee et al. 2019), from passages and pairs of question and answer.

    python -m pipelines.orqa --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \
        --out runs/orqa
    ragqa ask --pipeline runs/orqa/system/pipeline "…"

A retriever is warmed up by the inverse cloze task; its index of the passages is made once; then the question tower and
a reader learn together where answers stand. An interrupted run continues; finished stages are not repeated.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.common.command import run_recipe
from pipelines.common.stages import fill_unset, run_stage
from pipelines.orqa.config import CLOZE, TUNE, FineTuneConfig, InverseClozeConfig
from ragqa.progress import SILENT, Notify, Progress, ignore_line
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND


@dataclass(frozen=True, kw_only=True)
class OrqaConfig:
    """Settings of ORQA; those of its stages are the paper's."""

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory of the encoder that the towers and the reader begin from."""
    questions: Path
    """File of questions with answers."""
    out: Path
    """Directory of the stages: cloze, tune, and the finished system; stages found there are not repeated."""
    dev: Path | None = None
    """File of held-out questions: recall is measured on them, the best weights are kept, confidence is calibrated."""
    regex: bool = False
    """Treat answers as regular expressions (CuratedTREC)."""
    kind: str = DEFAULT_KIND
    """Kind of index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of all that is random."""
    cloze: InverseClozeConfig = CLOZE
    """Inverse cloze task; what is given here comes before what is given above."""
    tune: FineTuneConfig = TUNE
    """Fine-tuning; what is given here comes before what is given above."""


def plan_stages(config: OrqaConfig) -> tuple[InverseClozeConfig, FineTuneConfig]:
    """Return the settings of the stages, each of which begins from the result of the one before it."""
    common = {"corpus": config.corpus, "encoder": config.encoder, "device": config.device, "seed": config.seed}
    common |= {"dev": config.dev, "regex": config.regex}
    cloze = fill_unset(config.cloze, out=config.out / "cloze", **common)
    tuning = fill_unset(
        config.tune,
        retriever=cloze.out / "model",
        questions=config.questions,
        kind=config.kind,
        out=config.out / "tune",
        **common,
    )
    return cloze, tuning


def main(config: OrqaConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train whatever is not trained yet; return the pipeline directory. Raises as the stages do."""
    # Here, so that --help needs no torch.
    from pipelines.common import assemble
    from pipelines.common.processes import train_in_processes
    from pipelines.orqa import fine_tune, inverse_cloze

    cloze, tuning = plan_stages(config)
    inverse_cloze.check_inputs(cloze)
    fine_tune.check_inputs(tuning, notify)
    train = partial(partial, train_in_processes, progress=progress, notify=notify)
    # A sentence finds the passage that it was taken from.
    run_stage(cloze, train(inverse_cloze.main), notify)
    # The index is made once; the question tower learns with a reader where answers stand.
    run_stage(tuning, train(fine_tune.main), notify)
    system = fine_tune.plan_pipeline(tuning, config.out / "system")
    return run_stage(system, partial(assemble.main, progress=progress, notify=notify), notify)


if __name__ == "__main__":
    run_recipe("pipelines.orqa", OrqaConfig, __doc__, main, in_processes=False)
