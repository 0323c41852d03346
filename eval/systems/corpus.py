"""Make the corpus and the questions on which the tables of systems are trained and measured.

    python -m eval.systems.corpus --data DATA --out CORPUS
    python -m eval.systems.corpus --data DATA --out CORPUS --squad-train --blocks 55000

The corpus holds the gold passages of NQ test-a, all paragraphs of SQuAD dev-a and the gold paragraphs of NQ training
questions (QED); ``--squad-train``, for the table of generators, adds the paragraphs of SQuAD train. The rest are whole
articles of the wiki folder, drawn at random. ``questions/`` gets three files: recall.jsonl and dev.jsonl from NQ dev,
and train.jsonl. No training question equals or resembles one that is asked later.

The published tables used another selection of articles (commit 2f8b057): rows over two corpora do not compare.
"""

import json
import lzma
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from eval.command import report_errors
from pipelines.common.data_sets import HELD_OUT_SHARE, is_held_out
from ragqa import artefacts
from ragqa.cli.config import parse_config
from ragqa.corpus.blocks import make_word_splitter
from ragqa.corpus.sources import read_documents
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.progress import Bars
from ragqa.questions import read_questions, read_squad
from ragqa.text import normalize_answer, split_words
from ragqa.types import Question

NQ_GOLD, QED = "nq/test-a-gold-passages.jsonl.xz", "nq/train-with-passages.jsonl.xz"
SQUAD_TRAIN, SQUAD_TEST = "squad/train-v1.1.json.xz", "squad/dev-a-v1.1.json.xz"
TESTS = ("nq/test-a.jsonl", "webq/test-a.jsonl", "curatedtrec/test-a.jsonl", SQUAD_TEST)
"""Files of questions that must not be trained on; missing ones are left out."""
INDEX, REPORT = "corpus.index", "report.json"

SIMILAR = 0.6
"""Jaccard similarity of the words of two questions from which on they count as paraphrases."""
FUNCTION_WORDS = frozenset([
    "an", "and", "are", "as", "at", "be", "been", "by", "did", "do", "does", "for", "from", "had", "has", "have",
    "how", "in", "into", "is", "it", "its", "many", "much", "of", "on", "or", "than", "that", "this", "to", "was",
    "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "with",
])  # fmt: skip
"""Words that do not count in the comparison of questions."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Selection of passages and questions."""

    data: Path
    """Folder of the data sets: nq, squad, wiki, and for generators webq and curatedtrec."""
    out: Path
    """Directory to make."""
    blocks: int = 40_000
    """Size of the corpus, in blocks of 100 words."""
    squad_train: bool = False
    """Add the paragraphs and questions of SQuAD train."""
    recall: int = 2_000
    """Questions of NQ dev on which retrieval is measured."""
    dev: int = 500
    """Others of NQ dev that choose the weights, and as many of SQuAD train's held-out articles."""
    seed: int = 0
    """Seed of all random choices."""


def main(config: CorpusConfig) -> dict[str, Any]:
    """Make the corpus unless it exists, and return its report.

    Raises:
        BadInput: a file is missing or damaged, the gold passages alone are too many, or ``out`` holds a corpus of
            other settings.
    """
    settings = {name: value for name, value in asdict(config).items() if name not in ("data", "out")}
    if (config.out / REPORT).is_file():
        report: dict[str, Any] = json.loads((config.out / REPORT).read_text())
        if report["settings"] != settings:
            raise BadInput(
                f"{config.out} holds a corpus of other settings ({report['settings']}): choose another --out"
            )
        return report
    (config.out / "questions").mkdir(parents=True, exist_ok=True)
    counts = write_questions(config)
    documents = write_documents(config)
    build_index([config.out / "documents.jsonl"], config.out / INDEX, IndexConfig(retriever="bm25"), progress=Bars())
    blocks = len(PassageStore.open(config.out / INDEX / "passages"))
    report = {"settings": settings, "blocks": blocks, "documents": documents, "questions": counts}
    artefacts.write_text_whole(config.out / REPORT, json.dumps(report, indent=1) + "\n")
    return report


def write_documents(config: CorpusConfig) -> dict[str, int]:
    """Write documents.jsonl and return the number of documents from each source."""
    split, seen, counts, room = make_word_splitter(), set(), Counter[str](), config.blocks
    with (config.out / "documents.jsonl").open("w", encoding="utf-8") as file:
        for name, title, text in read_gold_passages(config):
            digest = blake2b(" ".join(split_words(text)).encode(), digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                file.write(json.dumps({"id": name, "title": title, "text": text}, ensure_ascii=False) + "\n")
                counts[name.partition("-")[0]] += 1
                room -= sum(1 for _ in split(text, 0))
        if room < 0:
            raise BadInput(f"--blocks {config.blocks}: the gold passages alone are {config.blocks - room} blocks")
        chosen = choose_articles(config, room)
        for document in read_documents([config.data / "wiki"]):
            if document.id in chosen:
                text = document.text[document.body :].strip()
                row = {"id": f"wiki-{document.id}", "title": document.title, "text": text}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                counts["wiki"] += 1
    return dict(counts)


def read_gold_passages(config: CorpusConfig) -> Iterator[tuple[str, str, str]]:
    """Yield id, title and text of the passages that the corpus must hold."""
    with lzma.open(config.data / NQ_GOLD, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            for passage in json.loads(line)["ctxs"]:
                if passage["isgold"]:
                    yield f"nq-{number}", passage["title"], passage["text"]
    for file in squad_files(config):
        name = "squad" if file.name == Path(SQUAD_TEST).name else "squadtrain"
        for number, paragraph in enumerate(read_squad(file), 1):
            yield f"{name}-{number}", paragraph.title, paragraph.text
    for number, question in enumerate(read_questions(config.data / QED), 1):
        yield f"qed-{number}", question.titles[0], detokenize(question.passages[0])


def squad_files(config: CorpusConfig) -> list[Path]:
    """Return the SQuAD files whose paragraphs are in the corpus."""
    names = (SQUAD_TEST, SQUAD_TRAIN) if config.squad_train else (SQUAD_TEST,)
    return [config.data / name for name in names]


def choose_articles(config: CorpusConfig, room: int) -> set[str]:
    """Return ids of articles in random order, up to the first that does not fit into ``room`` blocks.

    Articles of SQuAD are left out: their paragraphs are in the corpus.
    """
    split = make_word_splitter()
    titles = {normalize_answer(paragraph.title) for file in squad_files(config) for paragraph in read_squad(file)}
    sizes = {
        document.id: sum(1 for _ in split(document.text, document.body))
        for document in read_documents([config.data / "wiki"])
        if normalize_answer(document.title) not in titles
    }
    chosen: set[str] = set()
    for name in sorted(sizes, key=lambda name: blake2b(f"{config.seed} {name}".encode(), digest_size=16).digest()):
        room -= sizes[name]
        if room < 0:
            break
        chosen.add(name)
    return chosen


def write_questions(config: CorpusConfig) -> dict[str, int]:
    """Write the three files of questions and return how many each holds."""
    tests = [
        question for name in TESTS if (config.data / name).is_file() for question in read_questions(config.data / name)
    ]
    training = [*read_questions(config.data / QED), *read_questions(config.data / "nq/train.jsonl")]
    order = np.random.default_rng(config.seed)
    candidates = drop_similar(read_questions(config.data / "nq/dev.jsonl"), tests)
    if len(candidates) < config.recall + config.dev:
        raise BadInput(f"--recall {config.recall} --dev {config.dev}: NQ dev has {len(candidates)} questions to choose")
    drawn = [candidates[place] for place in order.permutation(len(candidates))]
    recall, dev = drawn[: config.recall], drawn[config.recall :][: config.dev]
    if config.squad_train:
        squad = list(read_questions(config.data / SQUAD_TRAIN))
        held = drop_similar((question for question in squad if is_held_out(question.titles[0], HELD_OUT_SHARE)), tests)
        dev += [held[place] for place in order.permutation(len(held))[: config.dev]]
        training += [question for question in squad if not is_held_out(question.titles[0], HELD_OUT_SHARE)]
    sets = {"recall": recall, "dev": dev, "train": drop_similar(training, [*tests, *recall, *dev])}
    for name, questions in sets.items():
        lines = "".join(map(format_question, questions))
        artefacts.write_text_whole(config.out / "questions" / f"{name}.jsonl", lines)
    return {name: len(questions) for name, questions in sets.items()}


def drop_similar(questions: Iterable[Question], others: Sequence[Question]) -> list[Question]:
    """Return the different questions that neither equal nor resemble one of ``others``.

    A paraphrase of a training question may be answered from memory, so it would count as retrieval.
    """
    known = [content_words(question) for question in others]
    places: dict[str, list[int]] = defaultdict(list)
    for number, own in enumerate(known):
        for word in own:
            places[word].append(number)
    seen, kept = {normalize_answer(question.text) for question in others}, []
    for question in questions:
        text, own = normalize_answer(question.text), content_words(question)
        shared = Counter(number for word in own for number in places.get(word, ()))
        similar = any(count >= SIMILAR * len(own | known[number]) for number, count in shared.items())
        if text not in seen and not similar:
            kept.append(question)
        seen.add(text)
    return kept


def content_words(question: Question) -> frozenset[str]:
    """Return the normalised words of a question without function words."""
    return frozenset(normalize_answer(question.text).split()) - FUNCTION_WORDS


def format_question(question: Question) -> str:
    """Return a question as a line of a file."""
    row: dict[str, Any] = {"question": question.text, "answers": question.answers}
    if question.passages:
        row |= {"passages": list(map(detokenize, question.passages)), "titles": question.titles}
    return json.dumps(row, ensure_ascii=False) + "\n"


_SPACED = (
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


def detokenize(text: str) -> str:
    """Return a text of NQ or QED, where spaces surround punctuation, set as prose.

    Otherwise these spaces would mark gold passages, and training would learn to look for spaces.
    """
    for pattern, replacement in _SPACED:
        text = pattern.sub(replacement, text)
    return text.strip()


if __name__ == "__main__":
    with report_errors():
        print(json.dumps(main(parse_config(CorpusConfig, __doc__)), indent=1))
