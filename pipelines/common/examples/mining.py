"""Mining of positive passages and hard negatives into a file.

The file has a JSON object for each question, one a line. The last line has the counts of questions, and the inputs and
settings that the result depends on.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from index.embed import EmbedConfig, embed
from pipelines.common.examples.retrieval_examples import (
    RetrievalExample,
    exclude_rows,
    is_relevant,
    list_gold_passages,
    make_example,
    to_rows,
)
from pipelines.common.questions import iterate_batches
from ragqa import artefacts
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput, DamagedArtefact
from ragqa.indexing.embed import open_shards
from ragqa.progress import SILENT, Progress
from ragqa.question_files import read_questions
from ragqa.retrieval.base import Retriever
from ragqa.retrieval.vectors.exact import ExactIndex
from ragqa.text import normalize_answer
from ragqa.types import Hit, Question

GOLD_HITS = 20
"""Number of hits that are compared with a gold passage to find it in the corpus."""
SEARCH_BATCH = 256
"""Number of questions in one search."""

# Names of the counts in messages. The last two count questions that are saved.
ASKED, KEPT = "asked", "kept"
NO_PASSAGE = "without a passage that contains an answer"
NOTHING = "with neither answers nor passages"
HELD_OUT = "also in the held-out file"
NOT_IN_CORPUS = "with a gold passage that the corpus lacks"
NO_NEGATIVE = "without a negative"


@dataclass(frozen=True)
class QuestionFile:
    """File of training questions."""

    path: Path
    """Path of the file."""
    regex: bool = False
    """True if the answers are regular expressions (CuratedTREC)."""


@dataclass(frozen=True)
class PassageSearch:
    """Retriever for mining, and numbers of passages per question."""

    retriever: Retriever
    """Retriever that finds the passages."""
    depth: int
    """Number of passages to retrieve for each question."""
    pool: int
    """Largest number of mined passages of one kind (positive or negative) to save for each question."""

    def find(self, questions: Iterable[Question]) -> list[list[Hit]]:
        """Return the best ``depth`` passages for each question."""
        return self.retriever.search([question.text for question in questions], self.depth)


def mine_examples(
    files: Sequence[QuestionFile],
    search: PassageSearch,
    out: Path,
    identity: dict[str, Any],
    *,
    keep_texts: bool = True,
    held_out: Iterable[str] = (),
    progress: Progress = SILENT,
) -> str:
    """Mine the examples of all questions into a file, completely or not at all.

    Args:
        files: training questions.
        search: search by BM25.
        out: file to write.
        identity: names and JSON values of all inputs and settings; ``read_examples`` compares them.
        keep_texts: True to use a gold passage that is not in the corpus as a positive; False to ignore this passage.
        held_out: texts of questions that training must leave out; case, punctuation and articles are ignored.
        progress: shows the number of questions.

    Returns:
        A line with the counts of saved and dropped questions.

    Raises:
        BadInput, BadLine: a file cannot be read, or no question is left for training.
        SlowPattern: an answer is a pattern that takes too long.
    """
    held_out_keys = {normalize_answer(text) for text in held_out}
    questions = [(question, file.regex) for file in files for question in read_questions(file.path)]
    counts: Counter[str] = Counter()

    def make_rows() -> Iterator[dict[str, Any]]:
        for batch in iterate_batches(questions, progress, "mining", SEARCH_BATCH):
            for outcome in _make_examples(batch, search, keep_texts, held_out_keys):
                if isinstance(outcome, str):
                    counts.update([ASKED, outcome])
                    continue
                has_own_text = any(isinstance(positive, str) for positive in outcome.positives)
                counts.update(
                    [ASKED, KEPT, *[NOT_IN_CORPUS] * has_own_text, *[NO_NEGATIVE] * (not len(outcome.negatives[0]))]
                )
                yield _to_json(outcome)
        if not counts[KEPT]:
            names = ", ".join(str(file.path) for file in files)
            raise BadInput(f"no question of {names} can be trained on: {format_counts(counts)}")

    _write(out, make_rows(), identity, counts)
    return format_counts(counts)


def write_retriever_negatives(
    examples: Sequence[RetrievalExample],
    search: PassageSearch,
    out: Path,
    identity: dict[str, Any],
    *,
    progress: Progress = SILENT,
) -> str:
    """Mine negatives with a trained retriever into a file; return a line with the counts.

    Args:
        examples: examples that ``read_examples`` returned.
        search: search by the trained retriever.
        out: file to write, completely or not at all.
        identity: names and JSON values of all inputs and settings; ``add_retriever_negatives`` compares them.
        progress: shows the number of questions.

    Raises:
        SlowPattern: an answer is a pattern that takes too long.
    """
    counts: Counter[str] = Counter()

    def make_rows() -> Iterator[dict[str, Any]]:
        for batch in iterate_batches(examples, progress, "mining", SEARCH_BATCH):
            for example, hits in zip(batch, search.find(example.question for example in batch), strict=True):
                relevant = {hit.passage.id for hit in hits if is_relevant(hit.passage, example.question, example.regex)}
                known = relevant.union(example.known.tolist())
                negatives = exclude_rows(hits, known)[: search.pool]
                counts.update([ASKED, KEPT, *[NO_NEGATIVE] * (not negatives)])
                yield {"negatives": negatives, "known": sorted(known)}

    _write(out, make_rows(), identity, counts)
    return format_counts(counts)


def format_counts(counts: Counter[str]) -> str:
    """Return one line with the numbers of saved and of dropped questions.

    Args:
        counts: numbers of questions, by the names ``ASKED`` to ``NO_NEGATIVE``.
    """
    dropped, noted = (
        ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name])
        for names in ((NO_PASSAGE, NOTHING, HELD_OUT), (NOT_IN_CORPUS, NO_NEGATIVE))
    )
    line = f"{counts[KEPT]:,} of {counts[ASKED]:,} questions"
    return line + (f"; dropped: {dropped}" if dropped else "") + (f"; of those kept: {noted}" if noted else "")


def read_examples(file: Path, identity: dict[str, Any]) -> list[RetrievalExample]:
    """Read the examples that ``mine_examples`` wrote.

    Args:
        file: file of the examples.
        identity: names and JSON values of all inputs and settings, which must equal the values in the file.

    Raises:
        BadInput: the file was mined with another ``identity``.
        DamagedArtefact: the file is damaged.
    """
    return [_from_json(row) for row in _read(file, identity)]


def add_retriever_negatives(
    file: Path, identity: dict[str, Any], examples: Sequence[RetrievalExample]
) -> list[RetrievalExample]:
    """Return examples with the negatives that ``write_retriever_negatives`` wrote.

    Args:
        file: file of the negatives.
        identity: names and JSON values of all inputs and settings, which must equal the values in the file.
        examples: examples of the same questions, with the negatives of BM25.

    Raises:
        BadInput: the file was mined with another ``identity``.
        DamagedArtefact: the file is damaged or has another number of questions.
    """
    rows = _read(file, identity)
    if len(rows) != len(examples):
        raise DamagedArtefact(f"{file} has {len(rows)} questions, not {len(examples)}: delete it to mine again")
    return [
        replace(example, negatives=(example.negatives[0], to_rows(row["negatives"])), known=to_rows(row["known"]))
        for example, row in zip(examples, rows, strict=True)
    ]


@contextmanager
def build_temporary_index(
    model: Path,
    corpus: Path,
    work: Path,
    *,
    device: str = "cpu",
    workers: int = 0,
    insecure: bool = False,
    progress: Progress = SILENT,
) -> Iterator[tuple[PassageStore, ExactIndex]]:
    """Embed a corpus; yield its passages and an exact index of their vectors.

    The vectors are deleted after the block. After an error in the embedding or in the block, finished vectors stay, and
    the next call continues with them.

    Args:
        model: directory of the dual encoder.
        corpus: index directory of the passages.
        work: directory for the vectors.
        device: device for embedding.
        workers: number of Ray actors that embed; 0 embeds in this process.
        insecure: True to accept a Ray cluster that asks for no token.
        progress: shows the number of passages.

    Raises:
        BadInput, ArtefactError, DamagedArtefact, RagqaError, MissingExtra: as for ``index.embed.embed``.
    """
    gpu = device.startswith("cuda")
    embedding = EmbedConfig(corpus=corpus, out=work, encoder=str(model), gpus=gpu, workers=workers, insecure=insecure)
    embed(embedding, progress=progress)
    store = PassageStore.open(corpus / "passages")
    vectors, engine = open_shards(work, len(store)), "torch" if gpu else "numpy"
    yield store, ExactIndex(vectors, deleted=store.deleted, engine=engine, device=device)
    shutil.rmtree(work)


def _make_examples(
    questions: Sequence[tuple[Question, bool]], search: PassageSearch, keep_texts: bool, held_out_keys: set[str]
) -> Iterator[RetrievalExample | str]:
    """Yield the example of each question, or the reason why it has none."""
    golds = list(dict.fromkeys(gold for question, _ in questions for gold in list_gold_passages(question)))
    gold_hits = dict(zip(golds, search.retriever.search(golds, GOLD_HITS) if golds else [], strict=True))
    for (question, regex), hits in zip(questions, search.find(question for question, _ in questions), strict=True):
        if normalize_answer(question.text) in held_out_keys:
            yield HELD_OUT
        elif not question.answers and not list_gold_passages(question):
            yield NOTHING
        else:
            example = make_example(question, regex, hits, gold_hits, pool=search.pool, keep_texts=keep_texts)
            yield example or NO_PASSAGE


def _to_json(example: RetrievalExample) -> dict[str, Any]:
    question = example.question
    return {
        "id": question.id,
        "question": question.text,
        "answers": question.answers,
        "regex": example.regex,
        "passages": () if question.answers else question.passages,
        "positives": example.positives,
        "negatives": example.negatives[0].tolist(),
        "known": example.known.tolist(),
    }


def _from_json(row: dict[str, Any]) -> RetrievalExample:
    passages = tuple(row["passages"])
    question = Question(row["question"], tuple(row["answers"]), row["id"], passages=passages)
    negatives = (to_rows(row["negatives"]),)
    return RetrievalExample(question, row["regex"], tuple(row["positives"]), negatives, to_rows(row["known"]))


def _write(file: Path, rows: Iterable[dict[str, Any]], identity: dict[str, Any], counts: Counter[str]) -> None:
    with artefacts.replace_file(file) as temporary, temporary.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
        out.write(json.dumps({"of": identity, "counts": counts}) + "\n")


def _read(file: Path, identity: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as lines:
            *rows, last = map(json.loads, lines)
        mined_from = dict(last["of"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedArtefact(f"{file} is damaged ({error}): delete it to mine again") from error
    if changed := [name for name, value in identity.items() if mined_from.get(name) != value]:
        raise BadInput(f"{file} was mined with another {', '.join(changed)}: choose another directory for the run")
    return rows
