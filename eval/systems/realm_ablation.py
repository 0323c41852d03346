"""Measure on real text what each part of REALM is worth, next to ORQA, DPR, BM25 and MiniLM (Guu et al. 2020, Table 2).

    python -m pipelines.masked_lm --corpus CORPUS/corpus.index … --out ENCODER
    python -m eval.systems.corpus --data DATA --out CORPUS
    python -m eval.systems.realm_ablation --data DATA --corpus CORPUS --encoder ENCODER/model --work runs/ablation
    python -m eval.systems.realm_ablation --data DATA --corpus CORPUS --encoder ENCODER/model --work runs/try --smoke

Recall is measured on questions of NQ dev before any question was trained on (DPR excepted), exact match after
fine-tuning, on NQ test-a and SQuAD dev-a. The sizes fit some ten hours of two cores, an encoder of 4 layers of width
256 and 40,000 passages; the papers' values are named where they differ much.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from eval.command import report_errors
from eval.systems.corpus import INDEX
from eval.systems.real_text import TableConfig, add_differences
from eval.systems.runner import (
    DEPTH,
    Arm,
    Stage,
    TableRunner,
    format_table,
    notify_about,
    select_arms,
)
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.progress import Bars
from ragqa.retrieval.base import Ranking, Scoring
from ragqa.retrieval.registry import RetrieverKind
from ragqa.retrieval.vectors.kinds import IndexKind
from ragqa.settings.command_line import parse_config

SUITES = ("nq", "squad")

# Settings are packed by hand: one line per field would hide the arms.
# fmt: off
SHARED: Mapping[str, Any] = {"corpus": "{corpus}/corpus.index", "dropout": 0.0, "compile": True}
PRETRAINED: Mapping[str, Any] = {**SHARED, "max_block": 160}  # 100 words and a title rarely have more wordpieces
INVERSE_CLOZE = Stage(
    recipe="inverse_cloze",
    out="cloze",
    settings={
        **PRETRAINED, "encoder": "{encoder}", "steps": 1000,
        "batch": 128,  # ORQA: 4096
        "chunk": 128,  # all at once: gradient caching would compute everything twice
        "lr": 5e-4,  # ORQA: 1e-4 for BERT-base
        "warmup": 100, "width": 128,
        "pooling": "mean",  # with [CLS] and a gain of 1 small towers learned nothing (docs/decisions.md)
        "gain": 128**-0.25, "shared": True, "max_query": 64, "save_every": 84,
    },
)
CLOZE_FROM_MINILM = replace(
    INVERSE_CLOZE,
    out="cloze-minilm",
    settings={**INVERSE_CLOZE.settings, "encoder": "{minilm}", "steps": 250, "warmup": 25, "save_every": 21},
)
READER_WARMUP = Stage(
    recipe="reader_warmup",
    out="reading",
    settings={
        **PRETRAINED, "encoder": "{encoder}", "steps": 1000, "batch": 64, "lr": 5e-4, "warmup": 100, "spans": 3,
        "max_text": 64, "save_every": 84,
    },
)


def realm(name: str, **changes: Any) -> Stage:
    """Return REALM's pretraining of an arm."""
    settings = {
        **PRETRAINED, "encoder": "{work}/reading/model", "retriever": "{work}/cloze/model",
        "dev": "{corpus}/questions/dev.jsonl",
        "steps": 600,  # REALM: 200,000
        "batch": 12,  # REALM: 512
        "k": 5,  # the null passage among them; REALM: 8
        "null": True, "masking": "salient",
        "spans": 3,  # three times REALM's signal for hardly more time
        "lr": 3e-4,
        "retriever_lr": 1e-4,  # a retriever that learns as fast as its reader collapses (closed world)
        "frozen": 200, "warmup": 60, "refresh_every": 150, "max_text": 64, "sample": 500, "eval_every": 120,
        "save_every": 50,
    }
    return Stage(recipe="realm", out=f"{name}/pretrain", settings={**settings, **changes})


def dpr(name: str, retriever: str) -> Stage:
    """Return DPR's training of an arm; only gold passages that the corpus has are positives."""
    settings = {
        **PRETRAINED, "retriever": retriever, "questions": ("{corpus}/questions/train.jsonl",), "corpus_only": True,
        "dev": "{corpus}/questions/dev.jsonl", "sample": 500, "steps": 1000, "batch": 64,
        "chunk": 128,  # a passage and a hard negative of each question
        "lr": 3e-4,  # DPR: 2e-5 for BERT-base
        "warmup": 100, "max_query": 64, "eval_every": 1000, "save_every": 84, "no_export": True,
    }
    return Stage(recipe="dpr", out=f"{name}/dpr", settings=settings)


def fine_tune(name: str, retriever: str, encoder: str = "{work}/reading/model", **changes: Any) -> Stage:
    """Return the fine-tuning of an arm's reader and question tower."""
    settings = {
        **SHARED, "retriever": retriever, "encoder": encoder, "questions": "{corpus}/questions/train.jsonl",
        "dev": "{corpus}/questions/dev.jsonl", "sample": 500, "steps": 2000, "batch": 8, "beam": 5000,
        "read": 5, "max_input": 192, "hidden": 256,
        "lr": 2e-4,  # ORQA and REALM: 1e-5 for BERT-base
        "retriever_lr": 5e-5, "warmup": 200, "eval_every": 400, "save_every": 167, **changes,
    }
    return Stage(recipe="fine_tune", out=f"{name}/tune", settings=settings)


def realm_arm(name: str, title: str, *, tune: bool = False, **changes: Any) -> Arm:
    """Return an arm of REALM; the reader goes on from the language model that the arm has pretrained."""
    parts = "{work}/" + f"{name}/pretrain"
    reading = (fine_tune(name, f"{parts}/model", f"{parts}/reader"),) if tune else ()
    stages = (INVERSE_CLOZE, READER_WARMUP, realm(name, **changes))
    return Arm(title=title, stages=stages, reading=reading)


SEEN = "all-MiniLM-L6-v2 was trained on pairs from the train splits of NQ and SQuAD"
SUPERVISED = "trained on questions of NQ before recall is measured"
TOWERS = Stage(recipe="towers", out="dpr/start", settings={"encoder": "{encoder}", "width": 128, "gain": 128**-0.25})
ARMS = {
    "random": Arm(title="passages drawn at random"),
    "bm25": Arm(title="BM25"),
    "minilm": Arm(title="all-MiniLM-L6-v2 in 8 bits, untouched", note=SEEN),
    "orqa": Arm(
        title="inverse cloze only (ORQA)",
        stages=(INVERSE_CLOZE,),
        reading=(READER_WARMUP, fine_tune("orqa", "{work}/cloze/model")),
    ),
    "dpr": Arm(
        title="DPR",
        stages=(TOWERS, dpr("dpr", "{work}/dpr/start/model")),
        reading=(READER_WARMUP, fine_tune("dpr", "{work}/dpr/dpr/model", freeze_retriever=True)),
        note=f"{SUPERVISED}; its retriever stays as it is in fine-tuning (Karpukhin et al. 2020, section 6.1)",
    ),
    "full": realm_arm("full", "REALM, full", tune=True),
    "stale": realm_arm("stale", "REALM, index never refreshed", tune=True, refresh_every=None),
    "no-null": realm_arm("no-null", "REALM, no null document", null=False, k=4),
    "spans": realm_arm("spans", "REALM, random spans masked", masking="spans"),
    "uniform": realm_arm("uniform", "REALM, random tokens masked", masking="uniform"),
    "dpr-cloze": Arm(
        title="inverse cloze, then DPR",
        stages=(INVERSE_CLOZE, dpr("dpr-cloze", "{work}/cloze/model")),
        note=SUPERVISED,
    ),
    "from-minilm": Arm(
        title="REALM, towers from MiniLM",
        stages=(CLOZE_FROM_MINILM, READER_WARMUP, realm("from-minilm", retriever="{work}/cloze-minilm/model")),
        note=SEEN,
    ),
}
ABOUT = {
    "corpus": "{blocks} blocks of 100 words (eval.systems.corpus)",
    "questions": "NQ dev, none a training question; NQ test-a; SQuAD dev-a: see the rows",
}
SMOKE: Mapping[str, Any] = {
    "steps": 3, "batch": 4, "chunk": 8, "warmup": 1, "k": 3, "frozen": 1, "refresh_every": 2, "beam": 20, "read": 2,
    "hidden": 16, "width": 8, "max_text": 32, "max_block": 64, "sample": 8, "eval_every": 3, "save_every": 2,
    "compile": False,
}
# fmt: on


@dataclass(frozen=True, kw_only=True)
class AblationConfig(TableConfig):
    """Arms and places of the ablation; ``encoder`` is the masked language model of pipelines.masked_lm."""

    arms: tuple[str, ...] = tuple(name for name in ARMS if name not in ("dpr-cloze", "from-minilm"))
    """Arms to train and measure."""
    minilm: Path | None = None
    """Torch weights of all-MiniLM-L6-v2, for the arm from-minilm."""
    recall_only: bool = False
    """Leave fine-tuning and exact match out."""
    seed: int = 0


def main(config: AblationConfig) -> dict[str, dict[str, Any]]:
    """Train and measure the arms; return the figures of each, by arm and measure."""
    names = select_arms(ARMS, config.arms)
    if "from-minilm" in names and config.minilm is None:
        raise BadInput("the arm from-minilm needs --minilm, the folder of all-MiniLM-L6-v2's torch weights")
    runner = config.make_runner(ABOUT, {"seed": config.seed}, SMOKE, minilm=config.minilm)
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        measure = partial(measure_recall, runner, config, name)
        rows[name]["recall"] = runner.keep_row({"arm": name, "measure": "recall"}, ARMS[name].stages, None, measure)
    for name in names if not config.recall_only else ():
        for suite in SUITES if ARMS[name].reading else ():
            stages = [*ARMS[name].stages, *ARMS[name].reading]
            measure = partial(measure_answers, runner, config, name, suite)
            rows[name][suite] = runner.keep_row({"arm": name, "measure": suite}, stages, config.limit, measure)
    add_differences(rows, config.work, "full")
    return rows


def measure_recall(runner: TableRunner, config: AblationConfig, name: str) -> dict[str, Any]:
    """Return answer recall of an arm's retriever on questions of NQ dev, and what its training took."""
    from ragqa.evaluation import evaluate
    from ragqa.questions import read_questions

    stages = ARMS[name].stages
    retriever = runner.train(stages)[-1] if stages else None
    report = evaluate(
        open_pipeline(config, name, retriever),
        list(read_questions(config.corpus / "questions" / "recall.jsonl")),
        out=config.work / name / "recall.report",
        name="NQ dev, drawn at random, none a training question",
        split="dev",
        corpus=runner.about["corpus"],
        depth=DEPTH,
        batch=32,
        read=False,
        progress=Bars(),
    )
    return {
        "questions": report.figures["about"]["questions"],
        "answer_recall": report.figures["answer_recall"],
        "coverage_bound": report.figures["coverage_bound"],
        "seconds": runner.seconds(stages),
        "alarms": len(runner.alarms(stages)),
    }


def open_pipeline(config: AblationConfig, name: str, retriever: Path | None) -> Any:
    """Return a pipeline over the passages by an arm's retriever, by BM25, or at random."""
    from index.build import BuildConfig, build
    from index.embed import EmbedConfig, embed
    from ragqa.pipeline import Pipeline
    from ragqa.retrieval.base import PassageRetriever
    from ragqa.runtime.encoder import DEFAULT_ENCODER

    passages, out, encoder = config.corpus / INDEX, config.work / name, str(retriever or DEFAULT_ENCODER)
    if name in ("bm25", "random"):
        by_terms = Pipeline.load(passages, retriever=RetrieverKind.BM25)
        store = PassageStore.open(passages / "passages")
        at_random = Pipeline(PassageRetriever(RandomRanker(store, config.seed), store), by_terms.reader)
        return by_terms if name == "bm25" else at_random
    gpus = retriever is not None and config.device.startswith("cuda")
    embed(EmbedConfig(corpus=passages, out=out / "vectors", encoder=encoder, workers=0, gpus=gpus), progress=Bars())
    build(
        BuildConfig(corpus=passages, vectors=out / "vectors", out=out / "index", kind=IndexKind.FLAT), progress=Bars()
    )
    return Pipeline.load(out / "index", retriever=RetrieverKind.DENSE, encoder=encoder)


class RandomRanker:
    """A ranker that draws passages by the question and the seed alone: recall by chance."""

    def __init__(self, passages: PassageStore, seed: int = 0) -> None:
        self._passages, self._seed = passages, seed

    scoring = Scoring("random")

    def rank(self, questions: list[str], k: int) -> list[Ranking]:
        """Return ``k`` different rows for each question."""
        return [self._draw(question, k) for question in questions]

    def _draw(self, question: str, k: int) -> Ranking:
        rng, count = np.random.default_rng([self._seed, crc32(question.encode())]), self._passages.live_count
        rows = self._passages.get_live_rows(rng.choice(count, min(k, count), replace=False))
        return Ranking(rows, -np.arange(len(rows), dtype=np.float32))


def measure_answers(runner: TableRunner, config: AblationConfig, name: str, suite: str) -> dict[str, Any]:
    """Fine-tune an arm, put a pipeline together, and return its scores on a test set."""
    from index.reuse import reuse_vectors
    from pipelines.common import assemble
    from pipelines.common.stages import run_stage
    from pipelines.orqa.fine_tune import plan_pipeline
    from ragqa.pipeline import Pipeline

    arm, out, notify = ARMS[name], config.work / name, partial(notify_about, name)
    retriever = runner.train(arm.stages)[-1]
    tune = runner.configure(arm.reading[-1])
    if (vectors := out / "vectors").is_dir():  # the passages were embedded to measure recall
        tune.out.mkdir(parents=True, exist_ok=True)
        reuse_vectors(vectors, retriever, tune.out / "vectors")
    runner.train(arm.reading)
    pipeline = run_stage(plan_pipeline(tune, out / "system"), partial(assemble.main, progress=Bars()), notify)
    loaded = Pipeline.load(pipeline, device=config.device)
    figures = config.score_suite(suite, loaded, out / f"{suite}.report", runner.about["corpus"])
    return {**figures, "seconds": runner.seconds(arm.reading)}


COLUMNS = {
    "recall @5": ("recall", "answer_recall", "5"),
    "@20": ("recall", "answer_recall", "20"),
    "@20 less full": ("less full", "recall", "answer_recall", "20"),
    "EM, NQ test-a": ("nq", "em"),
    "NQ less full": ("less full", "nq", "em"),
    "EM, SQuAD dev-a": ("squad", "em"),
    "SQuAD less full": ("less full", "squad", "em"),
}

if __name__ == "__main__":
    with report_errors():
        print(format_table(main(parse_config(AblationConfig, __doc__)), ARMS, COLUMNS))
