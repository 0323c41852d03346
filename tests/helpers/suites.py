"""A suite of three questions over three documents."""

import json
from pathlib import Path

from eval.published import Published
from eval.suite import Split, Suite
from ragqa.types import Question

THREE = Suite(
    key="three",
    title="Three Questions",
    about="Questions about what was built, found and baked. Licence: none.",
    splits={"train": Split("train.jsonl", 2), "test-a": Split("test-a.jsonl", 3)},
    default_split="test-a",
    hub=None,
    answer_type="names",
    published=(
        Published("ORACLE", 98.7, "Nobody 2020", "all of Wikipedia", "test, 9 questions"),
        Published("GUESS", 1.2, "Nobody 2021", "none (closed book)", "test, 9 questions"),
    ),
    caution="Three questions say little.",
)
DOCUMENTS = {
    "lighthouse.txt": "Skarvik Lighthouse was built in 1871 by the engineer Ada Holm. It stands on Brenna.\n",
    "bakery.txt": "The bakery on Mill Street was founded by Otto Brandt in 1923. It is known for rye bread.\n",
    "comet.txt": "Comet Varga was discovered by Ilona Varga in Szeged in 1956.\n",
}
QUESTIONS = [
    Question("Who built Skarvik Lighthouse?", ("Ada Holm",), "q1"),
    Question("Who discovered Comet Varga?", ("Ilona Varga", "I. Varga"), "q2"),
    Question("Who founded the bakery on Mill Street?", ("Zebedee Quux",), "q3"),  # in no document
]


def write_questions(file: Path, questions: list[Question] = QUESTIONS) -> Path:
    """Write questions as JSON lines and return their file."""
    rows = [{"id": q.id, "question": q.text, "answers": q.answers} for q in questions]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
