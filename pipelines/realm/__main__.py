"""REALM: retrieval-augmented language model pretraining (Guu et al. 2020), to a pipeline that answers.

    python -m pipelines.realm --corpus wiki.index --encoder bert-base --questions train.jsonl --dev dev.jsonl \\
        --out runs/realm
    ragqa ask --pipeline runs/realm/system/pipeline "…"

As ORQA, but that between warm start and fine-tuning retriever and reader are pretrained together: what is masked in a
text has to be found in the passages. A run that was broken off goes on; what was finished stays.
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
from pipelines.realm import pretrain
from pipelines.realm.pretrain import PretrainConfig
from ragqa.errors import BadInput
from ragqa.progress import SILENT, Progress
from ragqa.retrieval.vectors.kinds import DEFAULT_KIND
from ragqa.runtime.tokens import TextTokenizer

CLOZE = WarmStartConfig(corpus=ABOVE, encoder=ABOVE, out=ABOVE)
PRETRAIN = PretrainConfig(corpus=ABOVE, encoder=ABOVE, retriever=ABOVE, out=ABOVE)
TUNE = FineTuneConfig(corpus=ABOVE, retriever=ABOVE, encoder=ABOVE, questions=ABOVE, out=ABOVE)


@dataclass(frozen=True, kw_only=True)
class RealmConfig:
    """What REALM is made from; the settings of its stages are those of the paper, but for when its retriever learns and
    how fast (see ``FollowingConfig``)."""

    corpus: Path
    """Index directory of the passages Z."""
    encoder: Path
    """Directory of the masked language model that towers and reader begin from."""
    reader: Path | None = None
    """Directory of the one that the reader begins from, where it is another: pipelines.realm.reader_warmup makes
    one."""
    questions: Path
    """File of questions with answers."""
    out: Path
    """Directory of the stages: cloze, pretrain, tune, and the finished system; what is there goes on."""
    texts: Path | None = None
    """Index directory of the texts X that are masked; by default the passages themselves."""
    dev: Path | None = None
    """File of held-out questions, asked as training goes on: the best weights are kept, and confidence is fitted;
    the stages before measure recall on them."""
    regex: bool = False
    """Answers are patterns (CuratedTREC)."""
    kind: str = DEFAULT_KIND
    """Of the indexes: flat, hnsw, ivf-flat, ivf-pq, ivf-rabitq, sq8."""
    device: str = "cpu"
    seed: int = 0
    cloze: WarmStartConfig = CLOZE
    """The warm start; what it says itself, other than by default, goes before what is said above."""
    pretrain: PretrainConfig = PRETRAIN
    """The pretraining, as well."""
    tune: FineTuneConfig = TUNE
    """The fine-tuning, as well."""


def plan(config: RealmConfig) -> tuple[WarmStartConfig, PretrainConfig, FineTuneConfig, AssembleConfig]:
    """The settings of the stages, each of which begins from what the one before it leaves."""
    common = {"corpus": config.corpus, "device": config.device, "seed": config.seed}
    measured = {"questions": config.dev, "regex": config.regex}
    cloze = filled(config.cloze, encoder=config.encoder, out=config.out / "cloze", **measured, **common)
    masked = {"texts": config.texts, "kind": config.kind, **measured}
    reader = config.reader or config.encoder
    starts = {"retriever": cloze.out / "model", "encoder": reader, "out": config.out / "pretrain"}
    pretraining = filled(config.pretrain, **starts, **masked, **common)
    taught = {"questions": config.questions, "dev": config.dev, "regex": config.regex, "kind": config.kind}
    left = {"retriever": pretraining.out / "model", "encoder": pretraining.out / "reader"}
    tune = filled(config.tune, out=config.out / "tune", **left, **taught, **common)
    return cloze, pretraining, tune, assemble.after(tune, config.out / "system")


def main(
    config: RealmConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None
) -> Path:
    """Train all that is not trained yet; the pipeline directory. Raises as the stages do."""
    check_questions(config.questions, config.dev)
    if (
        config.reader is not None
        and TextTokenizer(config.reader).fingerprint != TextTokenizer(config.encoder).fingerprint
    ):
        raise BadInput(f"{config.reader} and {config.encoder} have different tokenizers: begin both from one encoder")
    cloze, pretraining, tune, system = plan(config)
    pretrain.check(pretraining)
    fine_tune.check_size(tune)
    # A sentence finds the passage that it was taken from: without that the reader would learn to pass retrieval over.
    finished(cloze, partial(together, inverse_cloze.main, progress=progress, notify=notify), notify)
    # What is masked in a text is found in the passages; the index follows the weights.
    finished(pretraining, partial(together, pretrain.main, progress=progress, notify=notify), notify)
    # The index is made once more; the tower of questions, and a reader beside it, learn where answers stand.
    finished(tune, partial(together, fine_tune.main, progress=progress, notify=notify), notify)
    return finished(system, partial(assemble.main, progress=progress, notify=notify), notify)


if __name__ == "__main__":
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.realm"):
        print(main(parse_config(RealmConfig, __doc__), progress=Bars(), notify=print))
