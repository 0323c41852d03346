"""Parts that the tables on real text share: settings, scores, differences from a baseline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.registry import SUITES
from eval.suite import read_split
from eval.systems.corpus import INDEX, REPORT
from eval.systems.runner import DEPTH, TableRunner
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.progress import Bars
from ragqa.retrieval.vectors.index_kinds import IndexKind

if TYPE_CHECKING:
    from ragqa.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """Settings of a table on real text."""

    data: Path
    """Folder of the data sets nq and squad, and for generators also webq and curatedtrec."""
    corpus: Path
    """Directory that eval.systems.corpus wrote."""
    encoder: Path
    """Directory of the encoder from which training starts."""
    work: Path
    """Directory for all runs."""
    out: Path | None = None
    """JSON file of the rows; default: rows.json in --work."""
    limit: int | None = None
    """Size of the random sample of each test set; default: all questions."""
    device: str = "cpu"
    """Device of training and of search, as torch names it."""
    smoke: bool = False
    """Run only a few steps of everything, to check that it works."""

    def make_runner(
        self, about: Mapping[str, str], changes: Mapping[str, Any], smoke: Mapping[str, Any], **paths: Path | None
    ) -> TableRunner:
        """Return the runner of the table.

        Args:
            about: descriptions ``corpus`` and ``questions``; ``{blocks}`` in them is the size of the corpus.
            changes: values of settings, for all stages that have these settings.
            smoke: further values of settings for a smoke run.
            paths: paths that stages name in braces, in addition to work, corpus and encoder.

        Raises:
            BadInput: ``eval.systems.corpus`` did not write ``corpus``.
        """
        if not (self.corpus / REPORT).is_file():
            raise BadInput(f"{self.corpus} holds no corpus: make it with python -m eval.systems.corpus")
        blocks = json.loads((self.corpus / REPORT).read_text())["blocks"]
        paths = {"work": self.work, "corpus": self.corpus, "encoder": self.encoder, **paths}
        return TableRunner(
            paths={name: path for name, path in paths.items() if path is not None},
            out=self.out or self.work / "rows.json",
            about={name: words.format(blocks=f"{blocks:,}") for name, words in about.items()},
            changes={"device": self.device, **changes, **(smoke if self.smoke else {})},
        )

    def build_index(self, folder: Path, encoder: str, *, gpus: bool, exported: str | None = None) -> Path:
        """Embed the corpus and build a flat index; return the directory of the index.

        Args:
            folder: directory for the folders ``vectors`` and ``index``.
            encoder: encoder of the passages.
            gpus: True to embed on GPUs.
            exported: export of the encoder, for questions; by default ``encoder`` encodes them.

        Raises:
            RagqaError: as for ``index.embed.embed`` and ``index.build.build``.
        """
        from index.build import BuildConfig, build
        from index.embed import EmbedConfig, embed

        passages, vectors, index = self.corpus / INDEX, folder / "vectors", folder / "index"
        embed(EmbedConfig(corpus=passages, out=vectors, encoder=encoder, workers=0, gpus=gpus), progress=Bars())
        plan = BuildConfig(corpus=passages, vectors=vectors, out=index, kind=IndexKind.FLAT, encoder=exported)
        build(plan, progress=Bars())
        return index

    def score_suite(self, key: str, pipeline: "Pipeline", out: Path, corpus: str, batch: int = 1) -> dict[str, Any]:
        """Score a pipeline on the test set of a suite.

        Args:
            key: key of the suite.
            pipeline: pipeline to score.
            out: directory of the report.
            corpus: description of the corpus.
            batch: number of questions in a batch.

        Returns:
            ``questions`` (their number), ``em``, ``f1``, ``answer_recall`` and ``coverage_bound`` of the report.

        Raises:
            RagqaError: as for ``read_split`` and ``evaluate``.
        """
        from ragqa.evaluation import evaluate

        suite = SUITES[key]
        questions = read_split(suite, suite.default_split, self.data / key).sample(self.limit)
        settings = suite.make_settings(questions, corpus=corpus, depth=DEPTH, batch=batch)
        figures = evaluate(pipeline, questions, settings, out=out, progress=Bars()).figures
        names = ("em", "f1", "answer_recall", "coverage_bound")
        return {"questions": figures["about"]["questions"], **{name: figures[name] for name in names}}


def add_differences(rows: Mapping[str, dict[str, Any]], work: Path, baseline: str) -> None:
    """Add differences from a baseline in exact match and recall to the other systems' rows.

    The key is ``less BASELINE``. Its value has the differences with p-values for each measure, or None if one of the
    two reports is missing, damaged or about other questions.

    Args:
        rows: figures by the names of the system and of the measure.
        work: directory of all runs, with a report for each figure.
        baseline: name of the system to compare with.
    """
    for name, row in rows.items():
        if name != baseline:
            pairs = {measure: [work / arm / f"{measure}.report" for arm in (name, baseline)] for measure in row}
            row[f"less {baseline.replace('-', ' ')}"] = {
                measure: _compare_reports(*pair) for measure, pair in pairs.items()
            }


def _compare_reports(ours: Path, baseline: Path) -> dict[str, Any] | None:
    from ragqa.evaluation import Report
    from ragqa.evaluation.compare import compare

    try:
        figures = compare(Report.load(ours), Report.load(baseline)).figures
    except (ArtefactError, Mismatch):
        return None
    return {"em": figures["em"], "answer_recall": {k: figures["answer_recall"].get(k) for k in ("5", "20")}}
