"""The folder of the data sets, of a few lines each, in the words of the encoder ``small``."""

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from eval.ablation_sources import NQ_DEV, NQ_GOLD, NQ_TEST, NQ_TRAIN, QED, SQUAD_DEV


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode()) if file.suffix == ".xz" else text.encode())


def ask(text: str, *answers: str) -> dict[str, Any]:
    return {"question": text, "answers": answers}


def archive(file: Path, articles: list[tuple[str, str, str]]) -> None:
    """Articles as WikiExtractor writes them, in a compressed archive."""
    text = "".join(
        f'<doc id="{n}" url="u" title="{title}">\n{title}\n\n{body}\n</doc>\n' for n, title, body in articles
    )
    data = text.encode()
    file.parent.mkdir(parents=True)
    with tarfile.open(file, "w:xz") as tar:
        member = tarfile.TarInfo("AA/wiki_00")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


def write(root: Path) -> Path:
    """What the ablation's corpus is made of."""
    fact = "w{} w50 w{} w1 w2"
    put(root / NQ_DEV, lines([ask(f"w60 w{100 + n} w1", f"w{600 + n}") for n in range(30)]))
    again = [ask("The w60, w103 w1?", "w603"), ask("w60 w140", "w640"), ask("w60 w140", "w640")]
    put(root / NQ_TRAIN, lines([ask(f"w61 w{100 + n}", f"w{600 + n}") for n in range(30)] + again))
    put(root / NQ_TEST, lines([ask(f"w62 w{100 + n}", f"w{600 + n}") for n in range(10)]))
    gold = [{"title": "w9", "text": fact.format(100 + n // 2, 600 + n // 2), "isgold": True} for n in range(4)]
    other = {"title": "w9", "text": "w3", "isgold": False}
    put(root / NQ_GOLD, lines([{**ask("w62", "w600"), "ctxs": [other, each]} for each in gold]))
    qed = [
        {
            "example_id": n,
            "title_text": f"w{n}",
            "paragraph_text": fact.format(150 + n, 650 + n) + " .",
            "question_text": f"w61 w{150 + n}",
            "answer_text": [f"w{650 + n}"],
        }
        for n in range(10)
    ]
    put(root / QED, lines([*qed, {**qed[0], "question_text": "w61 w140"}]))
    answer = [[{"text": f"w{670 + n}", "answer_start": 9}] for n in range(6)]
    asked = [{"id": f"s{n}", "question": f"w63 w{170 + n}", "answers": each} for n, each in enumerate(answer)]
    paragraphs = [{"context": fact.format(170 + n, 670 + n), "qas": [each]} for n, each in enumerate(asked)]
    put(root / SQUAD_DEV, json.dumps({"data": [{"title": "w170_w171", "paragraphs": paragraphs}]}))
    # 250 words, in three blocks; the first one of article n answers the question of dev about wn
    filler = " ".join(f"w{word % 20}" for word in range(244))
    articles = [(str(n), f"w60 w{n} (w5)", f"w1 w{n} w50 w{500 + n} in 1871. {filler}") for n in range(100, 130)]
    archive(root / "wiki" / "AA.tar.xz", [*articles, ("7", "w170 w171", "w170 w50 w670")])
    return root
