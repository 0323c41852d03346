"""The questions of the ablation: held-out ones, and those to train on, kept apart by their normalised text."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.ablation_sources import NQ_DEV, NQ_TEST, NQ_TRAIN, QED, SQUAD_DEV, plain
from ragqa.artefacts import resume
from ragqa.errors import BadInput
from ragqa.questions import read_questions
from ragqa.text import normalize_answer
from ragqa.types import Question

RECALL, DEV, TRAIN = "recall.jsonl", "dev.jsonl", "train.jsonl"
HELD_OUT = (NQ_DEV, NQ_TEST, SQUAD_DEV)
"""Files, none of whose questions may be trained on."""

COMMON = frozenset([
    "an", "and", "are", "as", "at", "be", "been", "by", "did", "do", "does", "for", "from", "had", "has", "have",
    "how", "in", "into", "is", "it", "its", "many", "much", "of", "on", "or", "than", "that", "this", "to", "was",
    "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "with",
])  # fmt: skip
"""Words that do not count where questions are compared."""
ALIKE = 0.6
"""Share of the words of two questions that both have, from which on they ask for the same (Jaccard)."""


@dataclass(frozen=True)
class Counts:
    """How many questions there are of each kind."""

    recall: int
    """Of NQ dev, on which retrieval is scored."""
    dev: int
    """Others of NQ dev, asked while something is trained."""
    train: int
    twice: int
    """Training questions that an earlier one equals."""
    held_out: int
    """Training questions left out because they are asked in a held-out file, too."""


def write(data: Path, out: Path, *, recall: int, dev: int, seed: int) -> Counts:
    """Write the three files of questions into the folder ``out``.

    Args:
        data: folder of the data sets.
        out: made if need be.
        recall: NQ dev questions for the table.
        dev: as many others for progress.
        seed: of the draw.

    Raises:
        BadInput: NQ dev has too few questions, or a file cannot be read.
    """
    chosen, others = split(list(read_questions(data / NQ_DEV)), recall, dev, seed)
    train, twice, held_out = training(
        [*read_questions(data / NQ_TRAIN), *read_questions(data / QED)], _texts(data / file for file in HELD_OUT)
    )
    out.mkdir(parents=True, exist_ok=True)
    for name, questions in ((RECALL, chosen), (DEV, others), (TRAIN, train)):
        resume.write_whole(out / name, "".join(map(line, questions)))
    return Counts(len(chosen), len(others), len(train), twice, held_out)


def split(questions: Sequence[Question], recall: int, dev: int, seed: int) -> tuple[list[Question], list[Question]]:
    """``recall`` and ``dev`` questions, all different, drawn at random; each in the order of the file."""
    own = _once(questions)
    if len(own) < recall + dev:
        raise BadInput(f"{recall} + {dev} questions are wanted of {len(own)} different ones: ask for fewer")
    order = np.random.default_rng(seed).permutation(len(own))
    parts = np.sort(order[:recall]), np.sort(order[recall : recall + dev])
    first, second = ([own[at] for at in part] for part in parts)
    return first, second


def training(questions: Iterable[Question], refused: set[str]) -> tuple[list[Question], int, int]:
    """The different questions that are not ``refused``; how many were there twice, how many were refused.

    Of two that are equal the one with a gold passage stays.
    """
    every = list(questions)
    own = _once(sorted(every, key=lambda question: not question.passages))
    kept = [question for question in own if normalize_answer(question.text) not in refused]
    return kept, len(every) - len(own), len(own) - len(kept)


class Alike:
    """Finds, among some questions, one that another is like."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._questions = list(questions)
        self._taught = [_words(question) for question in self._questions]
        self._places: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._taught):
            for word in words:
                self._places[word].append(number)

    def __call__(self, question: Question) -> Question | None:
        """The first found, None where there is none."""
        own = _words(question)
        shared = Counter(number for word in own for number in self._places.get(word, ()))
        alike = (number for number, count in shared.items() if count >= ALIKE * len(own | self._taught[number]))
        return next((self._questions[number] for number in alike), None)


def unlike(questions: Iterable[Question], train: Iterable[Question]) -> list[Question]:
    """Those that no training question is like: a paraphrase may have its answer's passage from training."""
    alike = Alike(train)
    return [question for question in questions if alike(question) is None]


def _words(question: Question) -> frozenset[str]:
    return frozenset(normalize_answer(question.text).split()) - COMMON


def check_apart(train: Path, held_out: Iterable[Path]) -> None:
    """Raise BadInput if a question of ``train``, case, punctuation and articles aside, is one of a held-out file."""
    own = {normalize_answer(question.text): question.text for question in read_questions(train)}
    for file in held_out:
        for question in read_questions(file):
            if (text := normalize_answer(question.text)) in own:
                raise BadInput(f"{train} asks '{own[text]}', which is held out in {file}: it must not be trained on")


def _once(questions: Iterable[Question]) -> list[Question]:
    """The first of those whose normalised texts are equal."""
    found: dict[str, Question] = {}
    for question in questions:
        found.setdefault(normalize_answer(question.text), question)
    return list(found.values())


def _texts(files: Iterable[Path]) -> set[str]:
    return {normalize_answer(question.text) for file in files for question in read_questions(file)}


def line(question: Question) -> str:
    """A question as a line of a file."""
    row = {"question": question.text, "answers": question.answers}
    more = {"passages": [plain(text) for text in question.passages]} if question.passages else {}
    more |= {"titles": list(question.titles)} if question.titles else {}
    return json.dumps({**row, **more}, ensure_ascii=False) + "\n"


def answers(file: Path) -> Iterator[Sequence[str]]:
    """The answers of each question of a file."""
    return (question.answers for question in read_questions(file))
