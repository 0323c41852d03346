r"""REALM: pretrain, fine-tune and assemble a question answering system (Guu et al. 2020).

    python -m pipelines.realm --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \
        --out runs/realm
    ragqa ask --pipeline runs/realm/system/pipeline "…"

This is ORQA with one more stage between the inverse cloze task and fine-tuning: in pretraining, retriever and reader
learn together to predict the masked words of a text from passages. The same command continues an interrupted run and
skips finished stages.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.common.command import run_recipe
from pipelines.common.stages import fill_unset, run_stage
from pipelines.orqa.config import FineTuneConfig, InverseClozeConfig, OrqaConfig
from pipelines.realm.config import PRETRAIN, PretrainConfig
from ragqa.errors import BadInput
from ragqa.progress import SILENT, Notify, Progress, ignore_line


@dataclass(frozen=True, kw_only=True)
class RealmConfig(OrqaConfig):
    """Settings of REALM: the settings of ORQA, and the settings of pretraining.

    Pretraining has the defaults of the paper, except that the retriever learns later and at a lower rate.
    """

    reader: Path | None = None
    """Directory of the masked language model that the reader begins from; default: ``encoder``.
    pipelines.realm.reader_warmup trains one."""
    texts: Path | None = None
    """Index directory of the texts X to mask; default: the passages themselves."""
    pretrain: PretrainConfig = PRETRAIN
    """Settings of pretraining, which override the settings of the whole recipe."""


def plan_stages(config: RealmConfig) -> tuple[InverseClozeConfig, PretrainConfig, FineTuneConfig]:
    """Return the settings of the inverse cloze task, pretraining and fine-tuning.

    Pretraining and fine-tuning begin from the result of the previous stage.
    """
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
    """Run the stages that are not finished; return the directory of the pipeline.

    Arguments and errors: as for ``pipelines.orqa.__main__.main``.
    """
    # Imported here, so that --help needs no torch.
    from pipelines.common import assemble
    from pipelines.common.processes import train_in_processes
    from pipelines.orqa import fine_tune_loop, inverse_cloze_loop
    from pipelines.realm import pretrain_loop
    from ragqa.runtime.tokens import TextTokenizer

    cloze, pretraining, tuning = plan_stages(config)
    reader = config.reader or config.encoder
    if TextTokenizer(reader).fingerprint != TextTokenizer(config.encoder).fingerprint:
        raise BadInput(f"{reader} and {config.encoder} have different tokenizers: begin both from one encoder")
    inverse_cloze_loop.check_inputs(cloze)
    pretrain_loop.check_inputs(pretraining)
    fine_tune_loop.check_inputs(tuning, notify)
    train = partial(partial, train_in_processes, progress=progress, notify=notify)
    # First the retriever, because without a trained one, the reader would learn to ignore retrieval in pretraining.
    run_stage(cloze, train(inverse_cloze_loop.main), notify)
    run_stage(pretraining, train(pretrain_loop.main), notify)
    run_stage(tuning, train(fine_tune_loop.main), notify)
    system = fine_tune_loop.plan_pipeline(tuning, config.out / "system")
    return run_stage(system, partial(assemble.main, progress=progress, notify=notify), notify)


if __name__ == "__main__":
    run_recipe("pipelines.realm", RealmConfig, __doc__, main, in_processes=False)
