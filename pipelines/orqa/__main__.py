r"""ORQA: open-retrieval question answering (Lee et al. 2019), from passages and pairs of question and answer.

    python -m pipelines.orqa --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \
        --out runs/orqa
    ragqa ask --pipeline runs/orqa/system/pipeline "…"

A retriever is warmed up by the inverse cloze task; its index of the passages is made once; then the question tower and
a reader learn together where answers stand. An interrupted run continues; finished stages are not repeated.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pipelines.common.stages import fill_unset, run_stage
from pipelines.orqa.config import FineTuneConfig, InverseClozeConfig, OrqaConfig
from ragqa.progress import SILENT, Progress


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


def main(config: OrqaConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
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
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.orqa"):
        print(main(parse_config(OrqaConfig, __doc__), progress=Bars(), notify=print))
