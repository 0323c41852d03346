"""Shared parts of the tables on real text: places, scores, and differences from a baseline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.systems.corpus import INDEX, REPORT
from eval.systems.runner import DEPTH, TableRunner
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.progress import Bars
from ragqa.retrieval.vectors.index_kinds import IndexKind

if TYPE_CHECKING:
    from ragqa.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """Places of a table on real text."""

    data: Path
    """Folder of the data sets: nq, squad, and for generators webq and curatedtrec."""
    corpus: Path
    """Directory made by eval.systems.corpus."""
    encoder: Path
    """Weights of the encoder that training starts from."""
    work: Path
    """Directory of all runs."""
    out: Path | None = None
    """JSON file of the rows; default: rows.json in --work."""
    limit: int | None = None
    """Questions of each test set, drawn at random; default: all."""
    device: str = "cpu"
    smoke: bool = False
    """Run a few steps of everything, to see that it works."""

    def make_runner(
        self, about: Mapping[str, str], changes: Mapping[str, Any], smoke: Mapping[str, Any], **paths: Path | None
    ) -> TableRunner:
        """Return the runner of the table.

        Args:
            about: ``corpus`` and ``questions`` in words, with ``{blocks}`` for the size of the corpus.
            changes: values for fields of every stage that has them.
            smoke: more of them, for a smoke run.
            paths: paths that stages name in braces, besides work, corpus and encoder.

        Raises:
            BadInput: ``corpus`` holds no corpus.
        """
        if not (self.corpus / REPORT).is_file():
            raise BadInput(f"{self.corpus} is no corpus: make one with python -m eval.systems.corpus")
        blocks = json.loads((self.corpus / REPORT).read_text())["blocks"]
        paths = {"work": self.work, "corpus": self.corpus, "encoder": self.encoder, **paths}
        return TableRunner(
            paths={name: path for name, path in paths.items() if path is not None},
            out=self.out or self.work / "rows.json",
            about={name: words.format(blocks=f"{blocks:,}") for name, words in about.items()},
            changes={"device": self.device, **changes, **(smoke if self.smoke else {})},
        )

    def build_index(self, folder: Path, encoder: str, *, gpus: bool, exported: str | None = None) -> Path:
        """Embed the corpus and return its flat index, with vectors and index in ``folder``.

        Args:
            folder: directory of both.
            encoder: encoder of the passages.
            gpus: embed on GPUs.
            exported: form of the encoder that embeds questions; default: the encoder itself.
        """
        from index.build import BuildConfig, build
        from index.embed import EmbedConfig, embed

        passages, vectors, index = self.corpus / INDEX, folder / "vectors", folder / "index"
        embed(EmbedConfig(corpus=passages, out=vectors, encoder=encoder, workers=0, gpus=gpus), progress=Bars())
        plan = BuildConfig(corpus=passages, vectors=vectors, out=index, kind=IndexKind.FLAT, encoder=exported)
        build(plan, progress=Bars())
        return index

    def score_suite(self, key: str, pipeline: "Pipeline", out: Path, corpus: str, batch: int = 1) -> dict[str, Any]:
        """Score a pipeline on a test set by the suite's rules and return its figures.

        Args:
            key: key of the suite.
            pipeline: the loaded pipeline.
            out: directory of the report.
            corpus: the corpus in words.
            batch: number of questions asked together.
        """
        from eval import curatedtrec, nq, squad, webq
        from eval.suite import read_split
        from ragqa.evaluation import evaluate

        suites = (nq.NQ, webq.WEBQ, curatedtrec.CURATEDTREC, squad.SQUAD)
        suite = next(suite for suite in suites if suite.key == key)
        questions = read_split(suite, suite.default_split, self.data / key).sample(self.limit)
        settings = suite.make_settings(questions, corpus=corpus, depth=DEPTH, batch=batch)
        figures = evaluate(pipeline, questions, settings, out=out, progress=Bars()).figures
        names = ("em", "f1", "answer_recall", "coverage_bound")
        return {"questions": figures["about"]["questions"], **{name: figures[name] for name in names}}


def add_differences(rows: Mapping[str, dict[str, Any]], work: Path, baseline: str) -> None:
    """Add to each row its exact match and recall less the baseline's, with intervals and p.

    Args:
        rows: figures by arm and measure.
        work: directory of all runs, with a report for each of these.
        baseline: the arm that the others are compared with.
    """
    for name, row in rows.items():
        if name != baseline:
            pairs = {measure: [work / arm / f"{measure}.report" for arm in (name, baseline)] for measure in row}
            row[f"less {baseline.replace('-', ' ')}"] = {
                measure: _compare_reports(*pair) for measure, pair in pairs.items()
            }


def _compare_reports(ours: Path, baseline: Path) -> dict[str, Any] | None:
    """Return exact match and recall less a baseline's, or None if the two do not compare."""
    from ragqa.evaluation import Report
    from ragqa.evaluation.compare import compare

    try:
        figures = compare(Report.load(ours), Report.load(baseline)).figures
    except (ArtefactError, Mismatch):
        return None
    return {"em": figures["em"], "answer_recall": {k: figures["answer_recall"].get(k) for k in ("5", "20")}}
