"""Fit the confidence of an exported reader on questions it was not trained on, as they are asked and in vain.

    python -m pipelines.calibrate.fit --reader DIR --squad train-v1.1.json.xz --questions nq/dev.jsonl \\
        --index wiki.index --work DIR --out FILE.json --plot FILE.png

Of SQuAD those of the articles are asked that ``pipelines.span_reader.train`` holds out, beside their own
paragraph and over
all paragraphs of the file; of ``--questions``, over ``--index``. Those that chose the weights are left out: ``--seed``,
``--held-out`` and ``--judged-by`` are the ``--seed``, ``--held-out`` and ``--sample`` of the training. Half of them are
asked once more with the documents taken out that the question names or that hold an answer: whatever is answered then
is wrong. These answers count ``VAIN_COUNTS`` each, so that confidence is that of questions as they are asked. Answers
out of the first ``FEWER`` hits alone count ``FEWER_COUNTS``: not everybody reads as many. The files count as much as
each other, in however many ways their questions are asked.

SQuAD's training questions have the answer of one annotator, its test questions those of three, any of which is right:
by one's judgement alone a reader would think too little of itself. So an answer that shares a word with the one gives
it the probability that another would have said it (``agreed``): an assumption, not a measurement.

What retrieval's scores count in reading (a weight per standard deviation) is chosen first: the one under which right
answers are most probable, those to every question that an index was asked alike. Into the reader goes
``calibration.json``: that weight, the regression, and the threshold below which questions are declined, the highest
that refuses at most 5 % of the right answers over indexes.
Figures are those of fits on one half of the questions, asked about the other.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.calibrate.conditions import ANSWERABLE, VAIN, Condition, gold, kind_of, over, without
from pipelines.calibrate.report import curve, figures, plot, threshold
from pipelines.common.calibration import LEAST, Fitted, fitted, install
from pipelines.common.data_sets import HELD_OUT_SHARE, read_held_out_questions, split_held_out
from pipelines.common.plot import check_plot
from pipelines.common.questions import answerable, asked_in, batches, unasked
from ragqa import artefacts
from ragqa.artefacts import write_text_whole
from ragqa.artefacts.machine import describe_hardware
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.metrics import exact_match, f1
from ragqa.progress import SILENT, Bars, Progress
from ragqa.questions import SquadParagraph, read_squad, write_documents
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.reading.calibration import SPAN_FEATURES, Calibration, Evidence
from ragqa.reading.span import ExtractiveReader, SpanAnswer
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import DEFAULT_RETRIEVER, RetrieverKind
from ragqa.runtime.scorer import SPREAD
from ragqa.types import Hit, Question

Right = Callable[[Sequence[SpanAnswer], Sequence[str]], list[float]]
"""Of each answer that was found the probability that it is right, by the gold ones."""
OTHERS = 2
"""Annotators of SQuAD's test questions beside the first (Rajpurkar et al. 2016, section 3.3)."""
VAIN_COUNTS = 0.1
"""Of an answer to a question that is asked in vain, in the fit."""
FEWER, FEWER_COUNTS = 3, 0.25
"""Hits that are read by those who read few, and what an answer out of them counts."""
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Of retrieval, that are tried."""
OWN = "SQuAD, own paragraph"
"""Set of questions that are read beside their paragraphs."""
JUDGED_BY, SEED = 500, 0
"""Questions of each file that chose the shipped reader's weights, and what drew them."""
_FLOOR = 1e-4
"""Probability of a right answer that is not among those found."""


def index_of(paragraphs: list[SquadParagraph], out: Path, retriever: str = DEFAULT_RETRIEVER) -> Path:
    """An index of the paragraphs, a passage each; made unless it is there. They are kept beside it, in a hidden file.

    Raises:
        BadInput: what is there is of other paragraphs, or of another retriever.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    corpus, made = out.with_name(f".{out.name}.jsonl"), out.with_name(f".{out.name}.new.jsonl")
    try:
        write_documents(((each.title, each.text) for each in paragraphs), made)
        if not (out / artefacts.MANIFEST).is_file():
            made.replace(corpus)
            build_index([corpus], out, IndexConfig(retriever=retriever, block_size=10_000), progress=Bars())
        elif (
            artefacts.peek_manifest(out).config["retriever"] != retriever
            or not corpus.is_file()
            or artefacts.checksum(corpus) != artefacts.checksum(made)
        ):
            raise BadInput(f"{out} is not of these paragraphs and {retriever}: remove it, or name another directory")
    finally:
        made.unlink(missing_ok=True)
    return out


@dataclass(frozen=True)
class Held:
    """Questions that a reader was not trained on, and one way to ask them."""

    file: Path
    """Where they stand."""
    name: str
    questions: Sequence[Question]
    condition: Condition
    right: Right
    vain: bool = False
    """Whether it takes the answers away."""

    def __str__(self) -> str:
        return f"{self.name}, in vain" if self.vain else self.name


@dataclass(frozen=True)
class Row:
    """The answer to a question, under one of the weights."""

    file: Path
    name: str
    number: int
    """Of the question in its set."""
    kind: str
    evidence: Evidence
    right: float
    """The probability that it is."""
    likely: float
    """Log of the probability of all right answers together."""
    few: bool = False
    """Whether it is out of the first hits alone."""

    @property
    def counts(self) -> float:
        """Beside other answers of its file."""
        return (VAIN_COUNTS if self.kind == VAIN else 1.0) * (FEWER_COUNTS if self.few else 1.0)


def exactly(found: Sequence[SpanAnswer], answers: Sequence[str]) -> list[float]:
    """1 for each answer that is a gold one, by NQ's rule; else 0."""
    return [float(exact_match(each.text, answers, unicode="NFD")) for each in found]


def agreed(found: Sequence[SpanAnswer], answers: Sequence[str]) -> list[float]:
    """The probability that each answer is the known annotator's, or one of ``OTHERS`` who were not asked.

    These are taken to mean the same thing, and to put it as the reader would, each for himself: of all answers that
    share a word with the known one, they say each as often as its weight among them.
    """
    near = [each.evidence.weight if f1(each.text, answers) else 0.0 for each in found]
    total = sum(near) or 1.0
    return [
        1.0 if exact_match(each.text, answers) else 1 - (1 - weight / total) ** OTHERS
        for each, weight in zip(found, near, strict=True)
    ]


def read(reader: ExtractiveReader, held: Held, progress: Progress = SILENT) -> list[list[Row]]:
    """For each of ``WEIGHTS`` the answers to all questions for which there is one."""
    rows: list[list[Row]] = [[] for _ in WEIGHTS]
    for some in batches(list(enumerate(held.questions)), progress, str(held)):
        asked = [question for _, question in some]
        scored = reader.score([question.text for question in asked], held.condition(asked))
        for (number, question), whole in zip(some, scored, strict=True):
            for each in (whole, whole.take(FEWER)) if len(whole.hits) > FEWER else (whole,):
                for weight, of_weight in zip(WEIGHTS, rows, strict=True):
                    if answers := reader.merge_spans(each, weight):
                        of_weight.append(_row(held, number, question, each.hits, answers, few=each is not whole))
    return rows


def _row(held: Held, number: int, question: Question, hits: list[Hit], answers: list[SpanAnswer], *, few: bool) -> Row:
    right = held.right(answers, question.answers)
    likely = sum(each.evidence.weight * good for each, good in zip(answers, right, strict=True))
    return Row(
        file=held.file,
        name=f"{held.name}, first {FEWER}" if few else held.name,
        number=number,
        kind=kind_of(hits, question, vain=held.vain),
        evidence=answers[0].evidence,
        right=0.0 if held.vain else right[0],
        likely=float(np.log(max(likely, _FLOOR))),
        few=few,
    )


def balanced(rows: Sequence[Row]) -> np.ndarray:
    """What the answers count in the fit: those to the questions of a file as much together as those to another's."""
    own = np.array([row.counts for row in rows])
    file = np.array([str(row.file) for row in rows])
    for each in np.unique(file):
        own[file == each] *= len(rows) / own[file == each].sum()
    return own


def likelihood(rows: Sequence[Row]) -> float:
    """Mean log probability of the right answers to the answerable questions; BadInput where there is none.

    Where an index was asked, nothing else says what retrieval should count: a paragraph alone reads the same.
    """
    asked = [row for row in rows if row.kind == ANSWERABLE]
    if not asked:
        raise BadInput("no passage that was read holds an answer to any of the questions: there is nothing to fit")
    asked = [row for row in asked if row.name != OWN] or asked
    return float(np.average([row.likely for row in asked], weights=[row.counts for row in asked]))


def squad(args: argparse.Namespace) -> list[Held]:
    """Questions of the held-out articles: beside their paragraphs, over those of all articles, and in vain."""
    asked = rest(read_held_out_questions(args.squad, args.held_out), args, args.squad)
    retriever = open_retriever(index_of(list(read_squad(args.squad)), args.work / "squad-train.index"), args.retriever)
    return [
        Held(args.squad, OWN, asked, gold, agreed),
        Held(args.squad, "SQuAD, all paragraphs", asked, over(retriever, args.k), agreed),
        Held(
            args.squad, "SQuAD, all paragraphs", asked[: len(asked) // 2], without(retriever, args.k), agreed, vain=True
        ),
    ]


def others(args: argparse.Namespace) -> list[Held]:
    """Questions of a file, over an index, and in vain."""
    asked, retriever = (
        rest(answerable(args.questions), args, args.questions),
        open_retriever(args.index, args.retriever),
    )
    name = args.questions.stem
    return [
        Held(args.questions, name, asked, over(retriever, args.k), exactly),
        Held(args.questions, name, asked[: len(asked) // 2], without(retriever, args.k), exactly, vain=True),
    ]


def rest(asked: Sequence[Question], args: argparse.Namespace, file: Path) -> list[Question]:
    """Those that did not choose the weights, ``--count`` at most; raises BadInput where there is none."""
    found = unasked(split_held_out(asked, args.judged_by, args.seed)[1], asked_in(args.refuse))[: args.count]
    if not found:
        left = f"of {len(asked)} held-out questions --judged-by {args.judged_by} chose the weights"
        raise BadInput(f"{file}: {left}: none is left to calibrate on")
    return found


def declines(rows: Sequence[Row], found: Fitted) -> tuple[float, dict[str, float]]:
    """The highest threshold that refuses at most 5 % of the right answers to what is asked as users ask, over an index.

    Beside it, of each such set the share of its right answers that are refused: where few questions have an answer,
    right ones are less sure and more of them are.
    """
    name = np.array([row.name for row in rows])
    asked = np.array([row.name != OWN and not row.few and row.kind != VAIN for row in rows])
    chosen = threshold(found.said[asked], found.right[asked])
    right = {str(each): found.said[asked & (name == each) & (found.right == 1)] for each in dict.fromkeys(name[asked])}
    return chosen, {each: round(float((said < chosen).mean()), 4) for each, said in right.items() if len(said)}


def told(rows: Sequence[Row], said: np.ndarray) -> dict[str, dict[str, Any]]:
    """Figures of each set, of what a fit ``said`` of answers that it had not seen."""
    name, kind = np.array([row.name for row in rows]), np.array([row.kind for row in rows])
    right = np.array([row.right for row in rows])
    return {each: figures(*(values[name == each] for values in (said, right, kind))) for each in dict.fromkeys(name)}


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    from ragqa.cli.config import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--reader", type=Path, required=True, help="exported reader to calibrate")
    add("--squad", type=Path, help="SQuAD 1.1 train file")
    add("--questions", type=Path, help="other held-out questions, asked over --index")
    add("--index", type=Path, help="index directory for these")
    add("--retriever", help=f"{', '.join(RetrieverKind)}; default: all that an index can do")
    add("--work", type=Path, required=True, help="where the index of SQuAD's paragraphs is kept")
    add("--count", type=int, default=1200, help="questions of each file")
    add(
        "--judged-by",
        type=int,
        default=JUDGED_BY,
        help="of each file, so many chose the weights (--sample of training)",
    )
    add("--seed", type=int, default=SEED, help="of the training, which drew them")
    add("--refuse", type=Path, nargs="+", default=[], help="files whose questions are not asked: those of the tests")
    add("--held-out", type=float, default=HELD_OUT_SHARE, help="share of SQuAD's articles that the training held out")
    add("--out", type=Path, required=True, help="JSON file of figures")
    add("--plot", type=Path, help="picture of them")
    add("-k", type=int, default=DEFAULT_PASSAGES)
    args = parser.parse_args(arguments)
    with report_errors("pipelines.calibrate.fit"):
        go(args, arguments)


def check(args: argparse.Namespace) -> None:
    """Raise BadInput for what cannot be calibrated, drawn or written, before anything is asked."""
    if bool(args.questions) != bool(args.index) or not (args.squad or args.questions):
        raise BadInput("--squad FILE, or --questions FILE with --index DIR, or all of them are needed")
    if args.count < 1 or args.k < 1 or args.judged_by < 0 or not 0 <= args.held_out < 1:
        raise BadInput("--count and -k are 1 or more, --judged-by 0 or more, --held-out is 0 or more and below 1")
    if args.plot:
        check_plot(args.plot)
    if args.out.is_dir():
        raise BadInput(f"--out {args.out} is a directory: name a file")


def chosen_weight(by_weight: dict[float, list[Row]], prior: str) -> tuple[float, dict[float, float]]:
    """What retrieval's scores count, and how likely right answers are under each of the weights."""
    likely = {weight: likelihood(rows) for weight, rows in by_weight.items()}
    return max(likely, key=lambda each: likely[each]) if prior == SPREAD else 1.0, likely


def calibrated(rows: list[Row], where: str, weight: float) -> tuple[Calibration, dict[str, Any]]:
    """The calibration by ``rows``, and the figures that say how good it is.

    Raises:
        BadInput: too few answers are right.
    """
    good = sum(row.right for row in rows if not row.few)
    if good < LEAST:
        raise BadInput(f"{good:.0f} of the questions are answered rightly: a fit needs {LEAST}; nothing is installed")
    found = fitted(
        [(row.evidence, row.right) for row in rows],
        where,
        features=SPAN_FEATURES,
        counts=balanced(rows),
        halves=[row.number % 2 for row in rows],
    )
    least, refused = declines(rows, found)
    calibration = replace(found.calibration, threshold=least, prior=weight)
    usual, kind = np.array([not row.few for row in rows]), np.array([row.kind for row in rows])
    return calibration, {
        "fitted_on": where,
        "coefficients": dict(zip(SPAN_FEATURES, calibration.coefficients, strict=True)),
        "threshold": least,
        "right_answers_refused_below": refused,
        "retrieval_counts": weight,
        "by_a_fit_on_the_other_half": told(rows, found.said),
        "refusals_of_all_sets": curve(found.said[usual], found.right[usual], kind[usual]),
    }


def go(args: argparse.Namespace, arguments: Sequence[str] | None) -> None:
    """Ask, fit, install, and write what is wanted."""
    check(args)
    identity = artefacts.read_manifest(args.reader, "reader").config["identity"]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    reader = ExtractiveReader.load(args.reader)
    sets = [*(squad(args) if args.squad else []), *(others(args) if args.questions else [])]
    parts = [read(reader, held, Bars()) for held in sets]
    by_weight = {weight: [row for part in parts for row in part[at]] for at, weight in enumerate(WEIGHTS)}
    weight, likely = chosen_weight(by_weight, reader.prior)
    asked = "; ".join(f"{len(held.questions)} of {held}" for held in sets)
    where = f"questions that training held out: {asked}; k = {args.k}"
    calibration, found = calibrated(by_weight[weight], where, weight)
    row = {
        "date": datetime.date.today().isoformat(),
        "hardware": describe_hardware(),
        "weights": identity,
        "command": "python -m pipelines.calibrate.fit " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "log_likelihood_of_right_answers": {str(each): round(value, 4) for each, value in likely.items()},
        **found,
    }
    install(calibration, args.reader)
    write_text_whole(args.out, json.dumps(row, indent=1) + "\n")
    if args.plot:
        plot(found["by_a_fit_on_the_other_half"], args.plot)
    print(args.out.read_text())
    print(f"installed in {args.reader}: questions are declined below {calibration.threshold}", file=sys.stderr)


if __name__ == "__main__":
    main()
