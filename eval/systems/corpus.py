"""Make the corpus and the questions for the tables on real text.

    python -m eval.systems.corpus --data DATA --out CORPUS
    python -m eval.systems.corpus --data DATA --out CORPUS --squad-train --blocks 55000 --dev 1500

The corpus has the gold passages of NQ test-a, the paragraphs of SQuAD dev-a, and the gold passages of NQ training
questions (QED). ``--squad-train`` adds the paragraphs of SQuAD train, for the table of generators. Random articles of
``wiki/`` in the data folder fill the rest.

The folder ``questions/`` has three files: recall.jsonl and dev.jsonl from NQ dev, and train.jsonl. With
``--squad-train``, dev.jsonl and train.jsonl also have questions of SQuAD. Questions of train.jsonl are neither in the
other two files nor in a test set.

The published tables used another selection of articles (commit 2f8b057), so do not compare them with new rows.
"""

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from eval.command import run_command
from eval.registry import SUITES
from pipelines.common.examples.data_sets import HELD_OUT_SHARE, is_held_out
from pipelines.common.questions import drop_known, make_question_keys
from ragqa import artefacts
from ragqa.corpus.sources import read_documents
from ragqa.corpus.splitters import make_word_splitter
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.progress import Bars
from ragqa.question_files import read_questions, read_squad, write_documents
from ragqa.retrieval.registry import RetrieverKind
from ragqa.terminal import print_json
from ragqa.text import normalize_answer
from ragqa.types import Question

NQ_GOLD, QED = "nq/test-a-gold-passages.jsonl.xz", "nq/train-with-passages.jsonl.xz"
SQUAD_TRAIN, SQUAD_TEST = "squad/train-v1.1.json.xz", "squad/dev-a-v1.1.json.xz"
TESTS = tuple(f"{key}/{suite.splits[suite.default_split].file}" for key, suite in SUITES.items())
"""Test files of all suites, whose questions are left out of training; a missing file is ignored."""
INDEX, REPORT = "corpus.index", "report.json"
_SPACED = (
    (re.compile(r"`` ?"), '"'),
    (re.compile(r" ?''"), '"'),
    (re.compile(r" -- "), " – "),
    (re.compile(r"(?<=\w) ([-/]) (?=\w)"), r"\1"),
    (re.compile(r" (?=(?:n't|'(?:s|m|d|ll|re|ve))\b)"), ""),
    (re.compile(r" +(?=[,.;:!?%)\]}°′])"), ""),
    (re.compile(r"(?<=[(\[{$£€¥#]) +"), ""),
)


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Settings of the corpus and of the questions."""

    data: Path
    """Folder of the data sets nq, squad and wiki, and for generators also webq and curatedtrec."""
    out: Path
    """Directory to write."""
    blocks: int = 40_000
    """Maximum size of the corpus, in passages of 100 words."""
    squad_train: bool = False
    """Add the paragraphs and questions of SQuAD train."""
    recall: int = 2_000
    """Number of questions of NQ dev that measure retrieval."""
    dev: int = 500
    """Number of other questions of NQ dev, which select weights; --squad-train adds as many from held-out articles."""
    seed: int = 0
    """Seed of all random choices."""


def main(config: CorpusConfig) -> dict[str, Any]:
    """Make the corpus and the questions unless they exist; return their report.

    Returns:
        ``settings``, the numbers of ``blocks`` (passages) and ``documents``, and the number of ``questions`` by file.

    Raises:
        BadInput: a file is missing or damaged, the gold passages do not fit, NQ dev has too few questions, or
            ``out`` holds a corpus with other settings.
        OSError: the file of NQ's gold passages cannot be read.
    """
    settings = {name: value for name, value in asdict(config).items() if name not in ("data", "out")}
    if (config.out / REPORT).is_file():
        report: dict[str, Any] = json.loads((config.out / REPORT).read_text())
        if report["settings"] != settings:
            raise BadInput(f"{config.out} holds a corpus with other settings ({report['settings']}): change --out")
        return report
    (config.out / "questions").mkdir(parents=True, exist_ok=True)
    counts = write_questions(config)
    gold = list(read_gold_passages(config))
    file = config.out / "documents.jsonl"
    documents = write_documents([*gold, *choose_articles(config, gold)], file)
    build_index([file], config.out / INDEX, IndexConfig(retriever=RetrieverKind.BM25, blocks="words"), progress=Bars())
    blocks = len(PassageStore.open(config.out / INDEX / "passages"))
    report = {"settings": settings, "blocks": blocks, "documents": documents, "questions": counts}
    artefacts.write_text_whole(config.out / REPORT, json.dumps(report, indent=1) + "\n")
    return report


def read_gold_passages(config: CorpusConfig) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each gold passage; a passage can occur several times.

    Raises:
        BadInput: a question file cannot be read.
        OSError: the file of NQ's gold passages cannot be read.
    """
    with lzma.open(config.data / NQ_GOLD, "rt", encoding="utf-8") as lines:
        for passage in (passage for line in lines for passage in json.loads(line)["ctxs"]):
            if passage["isgold"]:
                yield passage["title"], passage["text"]
    for name in (SQUAD_TEST, SQUAD_TRAIN) if config.squad_train else (SQUAD_TEST,):
        yield from ((paragraph.title, paragraph.text) for paragraph in read_squad(config.data / name))
    for question in read_questions(config.data / QED):
        yield question.titles[0], detokenize(question.passages[0])


def choose_articles(config: CorpusConfig, gold: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of random articles, until the corpus is full.

    The articles of gold passages are left out, because the corpus would have their text twice.

    Args:
        config: settings of the corpus.
        gold: title and text of each gold passage.

    Raises:
        BadInput: the gold passages alone are larger than the corpus, or ``wiki`` cannot be read.
    """
    split, titles = make_word_splitter(), {normalize_answer(title) for title, _ in gold}
    room = config.blocks - sum(sum(1 for _ in split(text, 0)) for text in {text for _, text in gold})
    if room < 0:
        raise BadInput(f"--blocks {config.blocks}: the gold passages alone need {config.blocks - room}")
    articles = {
        document.id: (document.title, document.text[document.list_sections()[0].start :].strip())
        for document in read_documents([config.data / "wiki"])
        if normalize_answer(document.title) not in titles
    }
    for name in sorted(articles, key=lambda name: blake2b(f"{config.seed} {name}".encode()).digest()):
        room -= sum(1 for _ in split(articles[name][1], 0))
        if room < 0:
            return
        yield articles[name]


def write_questions(config: CorpusConfig) -> dict[str, int]:
    """Write the three files of questions; return the number of questions of each file.

    Raises:
        BadInput, BadLine: a file cannot be read, or NQ dev has too few questions.
    """
    rng, tests = np.random.default_rng(config.seed), [config.data / name for name in TESTS]
    known = make_question_keys(file for file in tests if file.is_file())
    candidates = drop_known(list(read_questions(config.data / "nq/dev.jsonl")), known)
    if len(candidates) < config.recall + config.dev:
        raise BadInput(f"--recall {config.recall} --dev {config.dev}: NQ dev has only {len(candidates)} questions")
    shuffled = [candidates[number] for number in rng.permutation(len(candidates))]
    recall, dev = shuffled[: config.recall], shuffled[config.recall :][: config.dev]
    training = [*read_questions(config.data / QED), *read_questions(config.data / "nq/train.jsonl")]
    if config.squad_train:
        squad = list(read_questions(config.data / SQUAD_TRAIN))
        held_out = [question for question in squad if is_held_out(question.titles[0], HELD_OUT_SHARE)]
        dev += [held_out[number] for number in rng.permutation(len(held_out))[: config.dev]]
        training += [question for question in squad if not is_held_out(question.titles[0], HELD_OUT_SHARE)]
    known |= {normalize_answer(question.text) for question in (*recall, *dev)}
    sets = {"recall": recall, "dev": dev, "train": drop_known(training, known)}
    for name, questions in sets.items():
        lines = "".join(map(format_question, questions))
        artefacts.write_text_whole(config.out / "questions" / f"{name}.jsonl", lines)
    return {name: len(questions) for name, questions in sets.items()}


def format_question(question: Question) -> str:
    """Return a question as a line of a question file."""
    row: dict[str, Any] = {"question": question.text, "answers": question.answers}
    if question.passages:
        row |= {"passages": list(map(detokenize, question.passages)), "titles": question.titles}
    return json.dumps(row, ensure_ascii=False) + "\n"


def detokenize(text: str) -> str:
    """Return a text of QED without spaces around punctuation, which would reveal gold passages."""
    for pattern, replacement in _SPACED:
        text = pattern.sub(replacement, text)
    return text.strip()


if __name__ == "__main__":
    run_command(lambda config: print_json(main(config), indent=1), CorpusConfig, __doc__)
