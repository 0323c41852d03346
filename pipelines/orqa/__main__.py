r"""ORQA: train and assemble an open-retrieval question answering system (Lee et al. 2019).

    python -m pipelines.orqa --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \
        --out runs/orqa
    ragqa ask --pipeline runs/orqa/system/pipeline "…"

First a retriever learns by the inverse cloze task, and the passages are indexed once. Then the question tower and a
reader learn together to find answers. The same command continues an interrupted run and skips finished stages.
"""

from functools import partial
from pathlib import Path

from pipelines.common.command import run_recipe
from pipelines.common.stages import fill_unset, run_stage
from pipelines.orqa.config import FineTuneConfig, InverseClozeConfig, OrqaConfig
from ragqa.progress import SILENT, Notify, Progress, ignore_line


def plan_stages(config: OrqaConfig) -> tuple[InverseClozeConfig, FineTuneConfig]:
    """Return the settings of the inverse cloze task, and of fine-tuning from its retriever."""
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
    """Run the stages that are not finished; return the directory of the pipeline.

    Args:
        config: settings of the recipe.
        progress: shows the work of each stage.
        notify: receives a line when a stage begins, and the lines of the stages.

    Raises:
        RagqaError: an input cannot be used, a package is missing, or a stage fails.
    """
    # Imported here, so that --help needs no torch.
    from pipelines.common import assemble
    from pipelines.common.processes import train_in_processes
    from pipelines.orqa import fine_tune_loop, inverse_cloze_loop

    cloze, tuning = plan_stages(config)
    inverse_cloze_loop.check_inputs(cloze)
    fine_tune_loop.check_inputs(tuning, notify)
    train = partial(partial, train_in_processes, progress=progress, notify=notify)
    run_stage(cloze, train(inverse_cloze_loop.main), notify)
    run_stage(tuning, train(fine_tune_loop.main), notify)
    system = fine_tune_loop.plan_pipeline(tuning, config.out / "system")
    return run_stage(system, partial(assemble.main, progress=progress, notify=notify), notify)


if __name__ == "__main__":
    run_recipe("pipelines.orqa", OrqaConfig, __doc__, main, in_processes=False)
