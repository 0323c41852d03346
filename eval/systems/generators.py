"""Compare RAG-Token, RAG-Sequence, FiD, the closed book and the span reader on real text.

    python -m eval.systems.corpus --data DATA --out CORPUS --squad-train --blocks 55000 --dev 1500
    python -m eval.systems.generators --data DATA --corpus CORPUS --encoder MINILM --work runs/generators
    python -m eval.systems.generators --data DATA --corpus CORPUS --encoder MINILM --work runs/try --smoke

All generators start from one generator, made of the encoder of ragqa's span reader and one decoder layer, and trained
with gold passages. Then they train on the same questions, RAG and FiD for the same number of steps. All arms that read
passages use the same retriever.

The first training does not help the closed book, which reads no passages. Therefore, the closed book trains for as many
additional steps as the first training has. The difference from the closed book shows how much the passages help a
generator. The table takes about four hours on one core.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from eval.command import run_command
from eval.systems.real_text import TableConfig, add_differences
from eval.systems.runner import Arm, Stage, TableRunner, format_table, select_arms
from ragqa import artefacts
from ragqa.progress import Bars
from ragqa.retrieval.registry import RetrieverKind
from ragqa.terminal import print_error, print_text

SUITES = ("nq", "webq", "curatedtrec", "squad")
READ, BATCH = 4, 8
"""Number of passages to read for a test question (RAG: 15 or 50, FiD: 100), and number of questions in a batch."""
CALIBRATE = 200
"""Number of held-out questions on which confidence is calibrated."""

# The formatter is off, because one line for each setting would make the arms hard to compare.
# fmt: off
RETRIEVER = Stage("towers", "retriever", {
    "encoder": "{encoder}", "scale": 20.0,  # cosines would make p(z|x) nearly uniform; MiniLM was trained with scale 20
})
ANSWERS: Mapping[str, Any] = {
    "questions": "{corpus}/questions/train.jsonl", "dev": "{corpus}/questions/dev.jsonl", "sample": 200,
    "batch": 16, "max_answer": 20,
    "max_input": 192,  # enough for 100 words, a title and a question in nearly all cases
    "weight_decay": 0.01, "clip": 1.0, "dropout": 0.0,
}
START = Stage("warm_generator", "start", {
    **ANSWERS, "reader": "{reader}", "decoder_layers": 1, "fitted": 800, "steps": 2400, "warmup": 240,
    "lr": 1e-3, "eval_every": 800, "save_every": 200,
    "seed": 1,  # another order of the questions than in the arms
})
TRAINED: Mapping[str, Any] = {
    **ANSWERS, "generator": "{work}/start/generator", "steps": 300, "warmup": 30,
    "lr": 1e-4,  # RAG: 3e-5 for BART-large
    "eval_every": 100, "save_every": 25,
}
RAG: Mapping[str, Any] = {
    **TRAINED, "corpus": "{corpus}/corpus.index", "retriever": "{work}/retriever/model",
    "k": 3,  # RAG: 5 or 10; one more passage takes as long as one more question
    "smoothing": 0.0,  # as in FiD and the closed book
    "retriever_lr": 2e-5, "frozen": 0,
}
FID: Mapping[str, Any] = {
    **TRAINED, "index": "{work}/index", "retriever": RetrieverKind.DENSE.value, "k": 3, "calibrate": CALIBRATE,
}
CLOSED_BOOK: Mapping[str, Any] = {
    **TRAINED, "index": "{work}/index", "calibrate": CALIBRATE, "steps": 2700, "warmup": 270, "eval_every": 900,
    "save_every": 225,
}
SMOKE: Mapping[str, Any] = {
    "steps": 3, "warmup": 1, "batch": 2, "k": 2, "fitted": 8, "max_input": 64, "max_answer": 4, "sample": 4,
    "calibrate": 4, "eval_every": 3, "save_every": 2,
}
# fmt: on


def _make_arm(title: str, name: str, recipe: str, settings: Mapping[str, Any], **changes: Any) -> Arm:
    return Arm(title, (RETRIEVER,), (START, Stage(recipe, f"{name}/train", {**settings, **changes})))


ARMS = {
    "closed-book": _make_arm("closed book", "closed-book", "closed_book", CLOSED_BOOK),
    "rag-token": _make_arm("RAG-Token", "rag-token", "rag", RAG, marginal="token"),
    "rag-sequence": _make_arm("RAG-Sequence", "rag-sequence", "rag", RAG, marginal="sequence"),
    "fid": _make_arm("FiD", "fid", "fid", FID),
    "span": Arm("ragqa's own span reader, as shipped", (RETRIEVER,)),
}


@dataclass(frozen=True, kw_only=True)
class GeneratorsConfig(TableConfig):
    """Settings of the table of generators; ``encoder`` is all-MiniLM-L6-v2."""

    arms: tuple[str, ...] = tuple(ARMS)
    """Arms to train and measure."""
    reader: Path | None = None
    """Directory of the span reader from which generators are made; default: the shipped reader."""


def main(config: GeneratorsConfig) -> dict[str, dict[str, Any]]:
    """Train the arms and score them on all suites; return the figures by arm and suite.

    Raises:
        BadInput: a chosen arm does not exist, or ``config.corpus`` holds no corpus.
        RagqaError: as for ``make_index``, ``train_pipeline`` and ``TableConfig.score_suite``.
    """
    names = select_arms(ARMS, config.arms)
    reader = config.reader or config.work / "reader"
    about = {
        "corpus": "{blocks} passages of 100 words for all test sets (eval.systems.corpus)",
        "questions": "those of the suites: see the rows",
    }
    runner = config.make_runner(about, {}, SMOKE, reader=reader)
    make_index(runner, config)
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        stages = [*ARMS[name].stages, *ARMS[name].reading]
        for suite in SUITES:
            measure = partial(_measure_answers, runner, config, name, suite)
            options = [READ, BATCH, config.limit]
            rows[name][suite] = runner.keep_row({"arm": name, "suite": suite}, stages, options, measure)
    add_differences(rows, config.work, "closed-book")
    return rows


def make_index(runner: TableRunner, config: GeneratorsConfig) -> None:
    """Make the retriever, its index and the span reader, unless they exist.

    Raises:
        RagqaError: as for ``restore_weights``, ``export`` and ``TableConfig.build_index``.
    """
    from ragqa.artefacts.paths import get_weights_dir
    from ragqa.runtime.export import export
    from ragqa.runtime.restore import restore_weights

    (retriever,) = runner.train([RETRIEVER])
    if not runner.paths["reader"].is_dir():
        with artefacts.replace_directory(runner.paths["reader"]) as folder:
            restore_weights(get_weights_dir() / "reader", config.encoder, folder)
    if (config.work / "index").is_dir():
        return
    if not (exported := config.work / "export").is_dir():
        export(retriever, exported)
    config.build_index(config.work, str(retriever), gpus=config.device.startswith("cuda"), exported=str(exported))


def train_pipeline(runner: TableRunner, name: str) -> Path:
    """Train the arm ``name``; return the directory of its pipeline.

    For an arm without training, this is the index.

    Raises:
        RagqaError: as for ``TableRunner.train``.
    """
    from index.embed import reuse_vectors
    from pipelines.common import assemble
    from pipelines.common.stages import run_stage
    from pipelines.rag.loop import plan_pipeline

    stages, notify = ARMS[name].reading, partial(print_error, name)
    if not stages:
        return runner.work / "index"
    settings = runner.configure(stages[-1])
    if stages[-1].recipe == "rag":
        settings.out.mkdir(parents=True, exist_ok=True)
        reuse_vectors(runner.work / "vectors", settings.retriever, settings.out / "vectors")
    directory = runner.train(stages)[-1]
    if stages[-1].recipe != "rag":
        return directory
    calibrate = runner.changes.get("calibrate", CALIBRATE)
    whole = replace(plan_pipeline(settings, runner.work / name / "system"), calibrate=calibrate)
    return run_stage(whole, partial(assemble.main, progress=Bars(), notify=notify), notify)


def _measure_answers(runner: TableRunner, config: GeneratorsConfig, name: str, suite: str) -> dict[str, Any]:
    from ragqa.pipeline import Pipeline

    trained = train_pipeline(runner, name)
    pipeline = Pipeline.load(trained, retriever=RetrieverKind.DENSE, k=READ, device=config.device)
    out = config.work / name / f"{suite}.report"
    figures = config.score_suite(suite, pipeline, out, runner.about["corpus"], BATCH)
    stages = ARMS[name].reading
    return {**figures, "seconds": runner.sum_seconds(stages), "alarms": runner.list_alarms(stages)}


COLUMNS = {f"{suite} EM": (suite, "em") for suite in SUITES} | {
    f"{suite} less closed book": ("less closed book", suite, "em") for suite in SUITES
}

if __name__ == "__main__":
    run_command(lambda config: print_text(format_table(main(config), ARMS, COLUMNS)), GeneratorsConfig, __doc__)
