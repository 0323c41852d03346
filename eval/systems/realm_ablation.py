"""Train REALM without one part at a time, on real text (Guu et al. 2020, Table 2).

    python -m eval.systems.corpus --data DATA --out CORPUS
    python -m pipelines.masked_lm --corpus CORPUS/corpus.index … --out ENCODER
    python -m eval.systems.realm_ablation --data DATA --corpus CORPUS --encoder ENCODER/model --work runs/ablation
    python -m eval.systems.realm_ablation --data DATA --corpus CORPUS --encoder ENCODER/model --work runs/try --smoke

Other arms are ORQA, DPR, BM25, MiniLM and random passages. Recall is measured on NQ dev, before systems are fine-tuned
on questions; DPR has trained on questions by then. Four arms are fine-tuned, and their exact match is measured on NQ
test-a and SQuAD dev-a. The table takes about ten hours on two cores, with an encoder of 4 layers of width 256 and
40,000 passages. Comments name the values of the papers where they are very different.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from eval.command import run_command
from eval.systems.corpus import INDEX
from eval.systems.real_text import TableConfig, add_differences
from eval.systems.runner import DEPTH, Arm, Stage, TableRunner, format_table, select_arms
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.progress import Bars
from ragqa.retrieval.base import Ranking, Rows, Scoring
from ragqa.retrieval.registry import RetrieverKind
from ragqa.terminal import print_error, print_text

SUITES = ("nq", "squad")

# The formatter is off, because one line for each setting would make the arms hard to compare.
# fmt: off
SHARED: Mapping[str, Any] = {"corpus": "{corpus}/corpus.index", "dropout": 0.0, "compile": True}
PRETRAINED: Mapping[str, Any] = {**SHARED, "max_block": 160}  # enough for 100 words and a title in nearly all cases
INVERSE_CLOZE = Stage("inverse_cloze", "cloze", {
    **PRETRAINED, "encoder": "{encoder}", "steps": 1000,
    "batch": 128,  # ORQA: 4096
    "chunk": 128,  # the whole batch, because gradient caching computes every vector twice
    "lr": 5e-4,  # ORQA: 1e-4 for BERT-base
    "warmup": 100, "width": 128,
    "pooling": "mean",  # with [CLS] and gain 1, a small encoder learns nothing (docs/decisions.md)
    "gain": 128**-0.25, "shared": True, "max_query": 64, "save_every": 84,
})
CLOZE_FROM_MINILM = Stage("inverse_cloze", "cloze-minilm", {
    **INVERSE_CLOZE.settings, "encoder": "{minilm}", "steps": 250, "warmup": 25, "save_every": 21,
})
READER_WARMUP = Stage("reader_warmup", "reading", {
    **PRETRAINED, "encoder": "{encoder}", "steps": 1000, "batch": 64, "lr": 5e-4, "warmup": 100, "spans": 3,
    "max_text": 64, "save_every": 84,
})


def realm_stage(name: str, **changes: Any) -> Stage:
    """Return an arm's stage of REALM's pretraining; ``changes`` replace settings of "full"."""
    return Stage("realm", f"{name}/pretrain", {
        **PRETRAINED, "encoder": "{work}/reading/model", "retriever": "{work}/cloze/model",
        "dev": "{corpus}/questions/dev.jsonl",
        "steps": 600,  # REALM: 200,000
        "batch": 12,  # REALM: 512
        "k": 5,  # including the null passage; REALM: 8
        "null": True, "masking": "salient",
        "spans": 3,  # three times the training signal in nearly the same time; REALM: 1
        "lr": 3e-4,
        "retriever_lr": 1e-4,  # slower than the reader, because at the same rate the retriever collapses (closed world)
        "frozen": 200, "warmup": 60, "refresh_every": 150, "max_text": 64, "sample": 500, "eval_every": 120,
        "save_every": 50, **changes,
    })


def dpr_stage(name: str, retriever: str) -> Stage:
    """Return the stage of DPR's training in the arm ``name``, which starts from ``retriever``.

    Only passages of the corpus are positives.
    """
    return Stage("dpr", f"{name}/dpr", {
        **PRETRAINED, "retriever": retriever, "questions": ("{corpus}/questions/train.jsonl",), "corpus_only": True,
        "dev": "{corpus}/questions/dev.jsonl", "sample": 500, "steps": 1000, "batch": 64,
        "chunk": 128,  # the whole batch: one positive and one hard negative for each question
        "lr": 3e-4,  # DPR: 2e-5 for BERT-base
        "warmup": 100, "max_query": 64, "eval_every": 1000, "save_every": 84, "no_export": True,
    })


def _tuning_stage(name: str, retriever: str, encoder: str = "{work}/reading/model", **changes: Any) -> Stage:
    return Stage("fine_tune", f"{name}/tune", {
        **SHARED, "retriever": retriever, "encoder": encoder, "questions": "{corpus}/questions/train.jsonl",
        "dev": "{corpus}/questions/dev.jsonl", "sample": 500, "steps": 2000, "batch": 8, "beam": 5000,
        "read": 5, "max_input": 192, "hidden": 256,
        "lr": 2e-4,  # ORQA and REALM: 1e-5 for BERT-base
        "retriever_lr": 5e-5, "warmup": 200, "eval_every": 400, "save_every": 167, **changes,
    })


def _realm_arm(name: str, title: str, *, is_tuned: bool = False, **changes: Any) -> Arm:
    parts = f"{{work}}/{name}/pretrain"
    reading = (_tuning_stage(name, f"{parts}/model", f"{parts}/reader"),) if is_tuned else ()
    return Arm(title, (INVERSE_CLOZE, READER_WARMUP, realm_stage(name, **changes)), reading)


MINILM_NOTE = "all-MiniLM-L6-v2 was trained on pairs from the train splits of NQ and SQuAD"
SUPERVISED = "trained on questions of NQ before recall is measured"
TOWERS = Stage("towers", "dpr/start", {"encoder": "{encoder}", "width": 128, "gain": 128**-0.25})
ARMS = {
    "random": Arm("random passages"),
    "bm25": Arm("BM25"),
    "minilm": Arm("all-MiniLM-L6-v2 in 8 bits, without further training", note=MINILM_NOTE),
    "orqa": Arm(
        "inverse cloze only (ORQA)", (INVERSE_CLOZE,), (READER_WARMUP, _tuning_stage("orqa", "{work}/cloze/model")),
    ),
    "dpr": Arm(
        "DPR", (TOWERS, dpr_stage("dpr", "{work}/dpr/start/model")),
        (READER_WARMUP, _tuning_stage("dpr", "{work}/dpr/dpr/model", freeze_retriever=True)),
        f"{SUPERVISED}; fine-tuning does not change its retriever (Karpukhin et al. 2020, section 6.1)",
    ),
    "full": _realm_arm("full", "REALM, full", is_tuned=True),
    "stale": _realm_arm("stale", "REALM, index never refreshed", is_tuned=True, refresh_every=None),
    "no-null": _realm_arm("no-null", "REALM, no null passage", null=False, k=4),
    "spans": _realm_arm("spans", "REALM, random spans masked", masking="spans"),
    "uniform": _realm_arm("uniform", "REALM, random tokens masked", masking="uniform"),
    "dpr-cloze": Arm(
        "inverse cloze, then DPR", (INVERSE_CLOZE, dpr_stage("dpr-cloze", "{work}/cloze/model")), note=SUPERVISED,
    ),
    "from-minilm": Arm(
        "REALM, retriever from MiniLM",
        (CLOZE_FROM_MINILM, READER_WARMUP, realm_stage("from-minilm", retriever="{work}/cloze-minilm/model")),
        note=MINILM_NOTE,
    ),
}
ABOUT = {
    "corpus": "{blocks} passages of 100 words (eval.systems.corpus)",
    "questions": "NQ dev without training questions, NQ test-a, SQuAD dev-a: see the rows",
}
SMOKE: Mapping[str, Any] = {
    "steps": 3, "batch": 4, "chunk": 8, "warmup": 1, "k": 3, "frozen": 1, "refresh_every": 2, "beam": 20, "read": 2,
    "hidden": 16, "width": 8, "max_text": 32, "max_block": 64, "sample": 8, "eval_every": 3, "save_every": 2,
    "compile": False,
}
# fmt: on


@dataclass(frozen=True, kw_only=True)
class AblationConfig(TableConfig):
    """Settings of the ablation; pipelines.masked_lm makes ``encoder``."""

    arms: tuple[str, ...] = tuple(name for name in ARMS if name not in ("dpr-cloze", "from-minilm"))
    """Arms to train and measure."""
    minilm: Path | None = None
    """Directory of all-MiniLM-L6-v2 with torch weights, for the arm from-minilm."""
    recall_only: bool = False
    """Leave out fine-tuning and exact match."""
    seed: int = 0
    """Seed of all stages and of the random passages."""


def main(config: AblationConfig) -> dict[str, dict[str, Any]]:
    """Train and measure the arms; return the figures by arm and measure.

    Raises:
        BadInput: a chosen arm does not exist, or its inputs are missing.
        RagqaError: as for ``TableRunner.train``, ``TableConfig.build_index`` and ``TableConfig.score_suite``.
    """
    names = select_arms(ARMS, config.arms)
    if "from-minilm" in names and config.minilm is None:
        raise BadInput("the arm from-minilm needs --minilm, the folder of all-MiniLM-L6-v2's torch weights")
    runner = config.make_runner(ABOUT, {"seed": config.seed}, SMOKE, minilm=config.minilm)
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        measure = partial(_measure_recall, runner, config, name)
        rows[name]["recall"] = runner.keep_row({"arm": name, "measure": "recall"}, ARMS[name].stages, None, measure)
    for name in names if not config.recall_only else ():
        for suite in SUITES if ARMS[name].reading else ():
            stages = [*ARMS[name].stages, *ARMS[name].reading]
            measure = partial(_measure_answers, runner, config, name, suite)
            rows[name][suite] = runner.keep_row({"arm": name, "measure": suite}, stages, config.limit, measure)
    add_differences(rows, config.work, "full")
    return rows


def _measure_recall(runner: TableRunner, config: AblationConfig, name: str) -> dict[str, Any]:
    from ragqa.evaluation import evaluate
    from ragqa.question_files import read_questions

    stages = ARMS[name].stages
    figures = evaluate(
        _open_pipeline(config, name, runner.train(stages)[-1] if stages else None),
        list(read_questions(config.corpus / "questions" / "recall.jsonl")),
        out=config.work / name / "recall.report",
        name="NQ dev, random questions without training questions",
        split="dev",
        corpus=runner.about["corpus"],
        depth=DEPTH,
        batch=32,
        read=False,
        progress=Bars(),
    ).figures
    return {
        "questions": figures["about"]["questions"],
        "answer_recall": figures["answer_recall"],
        "coverage_bound": figures["coverage_bound"],
        "seconds": runner.sum_seconds(stages),
        "alarms": len(runner.list_alarms(stages)),
    }


def _open_pipeline(config: AblationConfig, name: str, retriever: Path | None) -> Any:
    from ragqa.pipeline import Pipeline
    from ragqa.retrieval.base import PassageRetriever
    from ragqa.runtime.encoder import DEFAULT_ENCODER

    if name in ("bm25", "random"):
        by_terms = Pipeline.load(config.corpus / INDEX, retriever=RetrieverKind.BM25)
        store = PassageStore.open(config.corpus / INDEX / "passages")
        at_random = Pipeline(PassageRetriever(RandomRanker(store, config.seed), store), by_terms.reader)
        return by_terms if name == "bm25" else at_random
    encoder, gpus = str(retriever or DEFAULT_ENCODER), retriever is not None and config.device.startswith("cuda")
    index = config.build_index(config.work / name, encoder, gpus=gpus)
    return Pipeline.load(index, retriever=RetrieverKind.DENSE, encoder=encoder)


class RandomRanker:
    """Ranker that returns random passages, which the question and the seed determine."""

    def __init__(self, passages: PassageStore, seed: int = 0) -> None:
        self._passages, self._seed = passages, seed

    scoring = Scoring("random")

    def rank(self, questions: list[str], k: int, rows: Rows | None = None) -> list[Ranking]:
        """Return up to ``k`` random rows for each question, from ``rows`` or from all passages."""
        if rows is None:
            rows = self._passages.get_live_rows(np.arange(self._passages.live_count))
        return [self._draw(question, k, rows) for question in questions]

    def _draw(self, question: str, k: int, all_rows: Rows) -> Ranking:
        rng = np.random.default_rng([self._seed, crc32(question.encode())])
        rows = all_rows[rng.choice(len(all_rows), min(k, len(all_rows)), replace=False)]
        return Ranking(rows, -np.arange(len(rows), dtype=np.float32))


def _measure_answers(runner: TableRunner, config: AblationConfig, name: str, suite: str) -> dict[str, Any]:
    from index.embed import reuse_vectors
    from pipelines.common import assemble
    from pipelines.common.stages import run_stage
    from pipelines.orqa.fine_tune_loop import plan_pipeline
    from ragqa.pipeline import Pipeline

    out, reading = config.work / name, ARMS[name].reading
    retriever, tuning = runner.train(ARMS[name].stages)[-1], runner.configure(reading[-1])
    if (vectors := out / "vectors").is_dir():  # the measurement of recall has already embedded the passages
        tuning.out.mkdir(parents=True, exist_ok=True)
        reuse_vectors(vectors, retriever, tuning.out / "vectors")
    runner.train(reading)
    notify = partial(print_error, name)
    system = run_stage(
        plan_pipeline(tuning, out / "system"), partial(assemble.main, progress=Bars(), notify=notify), notify
    )
    pipeline = Pipeline.load(system, device=config.device)
    figures = config.score_suite(suite, pipeline, out / f"{suite}.report", runner.about["corpus"])
    return {**figures, "seconds": runner.sum_seconds(reading)}


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
    run_command(lambda config: print_text(format_table(main(config), ARMS, COLUMNS)), AblationConfig, __doc__)
