"""Articles about invented towns in SQuAD's form, their questions, and a copy of the default reader."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.common.examples.data_sets import HELD_OUT_SHARE, is_held_out
from ragqa.artefacts.paths import get_weights_dir

HELD_OUT, NOT_HELD_OUT = 6, 12
"""Numbers of held-out and of other articles."""
QUESTIONS_PER_ARTICLE = 4
"""Number of questions per article; the gold answer of the last one is wrong."""
_TOWNS = [f"{first}{last}" for first in ("Val", "Brin", "Tor", "Kel", "Mar", "Os") for last in ("dale", "stad", "holm")]


def make_articles(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return articles of one paragraph each, in SQuAD's form."""
    articles = []
    for number, name in enumerate(names):
        text = f"{name} was founded in {1500 + number} by Duke Aldo {number}. It is known for its {number + 3} bridges."
        facts = {
            f"When was {name} founded?": str(1500 + number),
            f"Who founded {name}?": f"Duke Aldo {number}",
            f"How many bridges has {name}?": str(number + 3),
            f"In which year was {name} begun?": f"{number + 3} bridges",  # wrong on purpose
        }
        golds = {question: [{"text": gold, "answer_start": text.find(gold)}] for question, gold in facts.items()}
        qas = [{"id": f"{number}-{question}", "question": question, "answers": golds[question]} for question in facts]
        articles.append({"title": name, "paragraphs": [{"context": text, "qas": qas}]})
    return articles


def list_names() -> list[str]:
    """Return the names of ``HELD`` held-out articles, then of the others."""
    names = [f"{_TOWNS[n % len(_TOWNS)]} {n}" for n in range(2000)]
    held_out = [name for name in names if is_held_out(name, HELD_OUT_SHARE)][:HELD_OUT]
    return [*held_out, *[name for name in names if not is_held_out(name, HELD_OUT_SHARE)][:NOT_HELD_OUT]]


def write(root: Path) -> tuple[Path, Path]:
    """Write a SQuAD file of all articles, and the questions of those not held out as JSON lines."""
    articles = make_articles(list_names())
    (root / "squad.json").write_text(json.dumps({"data": articles}))
    rows = [
        {"question": each["question"], "answers": [each["answers"][0]["text"]]}
        for article in articles[HELD_OUT:]
        for each in article["paragraphs"][0]["qas"]
    ]
    (root / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root / "squad.json", root / "dev.jsonl"


def copy_reader(root: Path) -> Path:
    """Copy the default reader next to a link to the encoder whose embeddings it shares."""
    shutil.copytree(get_weights_dir() / "reader", root / "weights" / "reader")
    (root / "weights" / "encoder").symlink_to(get_weights_dir() / "encoder")
    return root / "weights" / "reader"
