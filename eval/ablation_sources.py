"""Texts for the corpus of a bench: the gold passages that are known of several question sets, and whole articles."""

import json
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ragqa.corpus.sources import CorpusReport, Document, count_input_bytes, read_documents
from ragqa.errors import BadInput
from ragqa.progress import Progress
from ragqa.questions import read_squad
from ragqa.text import words

NQ_DEV, NQ_TRAIN, NQ_TEST = "nq/dev.jsonl", "nq/train.jsonl", "nq/test-a.jsonl"
NQ_GOLD, QED = "nq/test-a-gold-passages.jsonl.xz", "nq/train-with-passages.jsonl.xz"
SQUAD_DEV = "squad/dev-a-v1.1.json.xz"
"""Files of the data folder."""


@dataclass(frozen=True)
class Text:
    """A text of the corpus."""

    source: str
    """nq-gold, squad, qed, said or random."""
    id: str
    title: str
    text: str


class Once:
    """Texts, each once; by its words."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self.twice = 0

    def __call__(self, texts: Iterable[Text]) -> Iterator[Text]:
        for each in texts:
            digest = blake2b(" ".join(words(each.text)).encode(), digest_size=16).digest()
            if digest in self._seen:
                self.twice += 1
                continue
            self._seen.add(digest)
            yield each


def known(data: Path) -> Iterator[Text]:
    """Gold passages of NQ test-a, all paragraphs of SQuAD dev-a, gold paragraphs of NQ training questions (QED)."""
    yield from nq_gold(data / NQ_GOLD)
    yield from squad(data / SQUAD_DEV)
    yield from qed(data / QED)


def nq_gold(file: Path) -> Iterator[Text]:
    """The passages of 100 words that the questions of NQ's test set were answered from (Liu et al. 2023)."""
    for number, row in rows(file):
        for passage in row["ctxs"]:
            if passage["isgold"]:
                yield Text("nq-gold", f"nq-gold-{number}", passage["title"], passage["text"])


def squad(file: Path, source: str = "squad") -> Iterator[Text]:
    """The paragraphs of a SQuAD file."""
    for number, paragraph in enumerate(read_squad(file), 1):
        yield Text(source, f"{source}-{number}", paragraph.title, paragraph.text)


def qed(file: Path) -> Iterator[Text]:
    """The paragraphs of NQ training questions, set as other texts are."""
    for number, row in rows(file):
        yield Text("qed", f"qed-{number}", row["title_text"], plain(row["paragraph_text"]))


def wiki(folder: Path, name: str, progress: Progress) -> Iterator[Document]:
    """The articles of the folder, streamed."""
    report = CorpusReport()
    with progress.step(name, count_input_bytes([folder]), "B") as step:
        for each in read_documents([folder], report=report):
            yield each
            step.at(report.bytes_read)
        step.at(report.bytes_read)


def rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, compressed or not, counted from 1; BadInput where it is none."""
    try:
        with lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8") as lines:
            yield from enumerate(map(json.loads, lines), 1)
    except (OSError, ValueError, lzma.LZMAError, EOFError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from error


_MENDED = (
    (re.compile("[\ufeff\u200b\u200e\u202c]"), ""),
    (re.compile(r"`` ?"), '"'),
    (re.compile(r" ?''"), '"'),
    (re.compile(r" -- "), " – "),
    (re.compile(r"(?<=\w) ([-/]) (?=\w)"), r"\1"),
    (re.compile(r" (?=(?:n't|'(?:s|m|d|ll|re|ve))\b)"), ""),
    (re.compile(r" +(?=[,.;:!?%)\]}°′])"), ""),
    (re.compile(r"(?<=[(\[{$£€¥#]) +"), ""),
    (re.compile(r" {2,}"), " "),
)


def plain(text: str) -> str:
    """A text whose words and signs stand apart, as NQ's and QED's do, set as prose is.

    Otherwise the gold paragraphs of training questions would be told from all other passages by their spaces, and
    who trained on them would have learnt that, not what they say.
    """
    for pattern, instead in _MENDED:
        text = pattern.sub(instead, text)
    return text.strip()
