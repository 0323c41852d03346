"""A folder of tiny data sets in the words of the encoder ``small``."""

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from pipelines.common.examples.data_sets import HELD_OUT_SHARE, is_held_out

TRAINED, HELD_OUT = (
    next(f"w200 w{n}" for n in range(201, 300) if is_held_out(f"w200 w{n}", HELD_OUT_SHARE) is held)
    for held in (False, True)
)
"""Titles of two articles of SQuAD train: the second one is held out."""
FACT = "w{} w50 w{} w1 w2"


def write_data_sets(root: Path) -> Path:
    """Write nq, squad, webq, curatedtrec and wiki under ``root``."""
    write_rows(root / "nq/dev.jsonl", [make_question(f"w60 w{100 + n} w1", f"w{600 + n}") for n in range(30)])
    again = [make_question(f"{text}", "w603") for text in ("The w60, w103 w1?", "w60 w140", "w60 w140")]
    train = [make_question(f"w61 w{100 + n}", f"w{600 + n}") for n in range(30)]
    write_rows(root / "nq/train.jsonl", [*train, *again])
    write_rows(root / "nq/test-a.jsonl", [make_question(f"w62 w{100 + n}", f"w{600 + n}") for n in range(10)])
    gold = [{"title": "w9", "text": FACT.format(100 + n // 2, 600 + n // 2), "isgold": True} for n in range(4)]
    other = {"title": "w9", "text": "w3", "isgold": False}
    write_rows(
        root / "nq/test-a-gold-passages.jsonl.xz",
        [{**make_question("w62", "w600"), "ctxs": [other, passage]} for passage in gold],
    )
    qed = [
        {
            "example_id": n,
            "title_text": f"w{n}",
            "paragraph_text": FACT.format(150 + n, 650 + n) + " .",
            "question_text": f"w61 w{150 + n}",
            "answer_text": [f"w{650 + n}"],
        }
        for n in range(10)
    ]
    write_rows(root / "nq/train-with-passages.jsonl.xz", [*qed, {**qed[0], "question_text": "w61 w140"}])
    write_rows(root / "webq/test-a.jsonl", [make_question(f"w64 w{100 + n}", f"w{600 + n}") for n in range(5)])
    write_rows(root / "curatedtrec/test-a.jsonl", [make_question("w65 w70 w71 w72", "w60[01]")])
    write_squad(root / "squad")
    # Each article has 250 words, so three blocks; the first block answers the question of dev about its number.
    filler = " ".join(f"w{word % 20}" for word in range(244))
    articles = [(str(n), f"w60 w{n} (w5)", f"w1 w{n} w50 w{500 + n} in 1871. {filler}") for n in range(100, 130)]
    write_archive(root / "wiki" / "AA.tar.xz", [*articles, ("7", "w170 w171", "w170 w50 w670")])
    return root


def write_squad(folder: Path) -> None:
    """Write SQuAD's files: one article of dev, one to train on and a held-out one."""
    answers = [[{"text": f"w{670 + n}", "answer_start": 9}] for n in range(6)]
    questions = [{"id": f"s{n}", "question": f"w63 w{170 + n}", "answers": each} for n, each in enumerate(answers)]
    paragraphs = [{"context": FACT.format(170 + n, 670 + n), "qas": [each]} for n, each in enumerate(questions)]
    dev = {"data": [{"title": "w170_w171", "paragraphs": paragraphs}]}
    train = {"data": [_article(TRAINED, "w66"), _article(HELD_OUT, "w67")]}
    write_text(folder / "dev-a-v1.1.json.xz", json.dumps(dev))
    write_text(folder / "train-v1.1.json.xz", json.dumps(train))


def _article(title: str, first: str) -> dict[str, Any]:
    """Return an article of one paragraph that holds w310 to w329, and ten questions about it."""
    context = f"{title} has " + " ".join(f"w{n}" for n in range(310, 330))
    questions = [
        {
            "id": f"{title} {n}",
            "question": f"{first} w{81 + n}",
            "answers": [{"text": f"w{310 + n}", "answer_start": context.index(f"w{310 + n}")}],
        }
        for n in range(10)
    ]
    return {"title": title.replace(" ", "_"), "paragraphs": [{"context": context, "qas": questions}]}


def make_question(text: str, *answers: str) -> dict[str, Any]:
    """Return a question as NQ-open's files have it."""
    return {"question": text, "answers": answers}


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write JSON lines; a name that ends in .xz is compressed."""
    write_text(file, "".join(json.dumps(row) + "\n" for row in rows))


def write_text(file: Path, text: str) -> None:
    """Write a text; a name that ends in .xz is compressed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode()) if file.suffix == ".xz" else text.encode())


def write_archive(file: Path, articles: list[tuple[str, str, str]]) -> None:
    """Write articles as WikiExtractor does, in a compressed archive."""
    text = "".join(
        f'<doc id="{n}" url="u" title="{title}">\n{title}\n\n{body}\n</doc>\n' for n, title, body in articles
    )
    data = text.encode()
    file.parent.mkdir(parents=True)
    with tarfile.open(file, "w:xz") as tar:
        member = tarfile.TarInfo("AA/wiki_00")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
