"""ORQA: open-retrieval question answering (Lee et al. 2019), from passages and pairs of question and answer.

    python -m pipelines.orqa --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \\
        --out runs/orqa
    ragqa ask --pipeline runs/orqa/system/pipeline "…"

A retriever is warmed up by the inverse cloze task; its index of the passages is made once; then the tower of questions
and a reader learn together where answers stand. A run that was broken off goes on; what was finished stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.common import assemble
from pipelines.common.assemble import AssembleConfig
from pipelines.common.processes import together
from pipelines.common.stages import ABOVE, check_questions, filled, finished
from pipelines.orqa import fine_tune, inverse_cloze
from pipelines.orqa.fine_tune import FineTuneConfig
from pipelines.orqa.inverse_cloze import WarmStartConfig
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND

CLOZE = WarmStartConfig(corpus=ABOVE, encoder=ABOVE, out=ABOVE)
TUNE = FineTuneConfig(corpus=ABOVE, retriever=ABOVE, encoder=ABOVE, questions=ABOVE, out=ABOVE)


@dataclass(frozen=True, kw_only=True)
class OrqaConfig:
    """What ORQA is made from; the settings of its stages are those of the paper."""

    corpus: Path
    """Index directory of the passages."""
    encoder: Path
    """Directory of the encoder that the towers and the reader begin from."""
    questions: Path
    """File of questions with answers."""
    out: Path
    """Directory of the stages: cloze, tune, and the finished system; what is there goes on."""
    dev: Path | None = None
    """File of held-out questions, asked as training goes on: recall is measured, the best weights are kept, and
    confidence is fitted."""
    regex: bool = False
    """Answers are patterns (CuratedTREC)."""
    kind: str = DEFAULT_KIND
    """Of the index: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    device: str = "cpu"
    seed: int = 0
    cloze: WarmStartConfig = CLOZE
    """The warm start; what it says itself, other than by default, goes before what is said above."""
    tune: FineTuneConfig = TUNE
    """The fine-tuning, as well."""


def plan(config: OrqaConfig) -> tuple[WarmStartConfig, FineTuneConfig, AssembleConfig]:
    """The settings of the stages, each of which begins from what the one before it leaves."""
    common = {"corpus": config.corpus, "device": config.device, "seed": config.seed}
    measured = {"questions": config.dev, "regex": config.regex}
    cloze = filled(config.cloze, encoder=config.encoder, out=config.out / "cloze", **measured, **common)
    taught = {"questions": config.questions, "dev": config.dev, "regex": config.regex, "kind": config.kind}
    starts = {"retriever": cloze.out / "model", "encoder": config.encoder, "out": config.out / "tune"}
    tune = filled(config.tune, **starts, **taught, **common)
    return cloze, tune, assemble.after(tune, config.out / "system")


def main(config: OrqaConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
    """Train all that is not trained yet; the pipeline directory. Raises as the stages do."""
    check_questions(config.questions, config.dev)
    cloze, tune, system = plan(config)
    fine_tune.check_size(tune)
    # A sentence finds the passage that it was taken from.
    finished(cloze, partial(together, inverse_cloze.main, progress=progress, notify=notify), notify)
    # The index is made once; the tower of questions, and a reader beside it, learn where answers stand.
    finished(tune, partial(together, fine_tune.main, progress=progress, notify=notify), notify)
    return finished(system, partial(assemble.main, progress=progress, notify=notify), notify)


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.orqa"):
        print(main(parse_config(OrqaConfig, __doc__), progress=Bars(), notify=print))
