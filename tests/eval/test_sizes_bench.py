"""The bench of sizes: which wordpieces are kept, what is read without the others, and all of it at smoke size."""

import json
from pathlib import Path

import numpy as np
import pytest

from eval.bench import sizes
from pipelines.common.data_sets import SHARE, held_out
from ragqa.artefacts.paths import weights_dir
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.runtime.tokens import TextTokenizer


def test_occurrences_by_hand() -> None:
    tokenizer = TextTokenizer(weights_dir() / "encoder")
    (the,), (cat,) = (tokenizer.pieces(word).ids for word in ("the", "cat"))
    count_V = sizes.occurrences(tokenizer, [["the cat", ""], [], ["The the"]], 30_522)
    assert (count_V[the], count_V[cat], count_V.sum()) == (3, 1, 4)


def test_words_are_cut_into_the_pieces_that_are_left(tmp_path: Path) -> None:
    whole = TextTokenizer(weights_dir() / "encoder")
    kept_V = np.ones(30_522, dtype=bool)
    kept_V[whole.pieces("lighthouse").ids] = False
    assert sizes.without(weights_dir() / "encoder", kept_V, tmp_path) == 30_521
    fewer = TextTokenizer(tmp_path)
    assert fewer.pieces("lighthouse").ids == [*whole.pieces("light").ids, whole.pieces("doghouse").ids[-1]]
    assert fewer.pieces("a lamp").ids == whole.pieces("a lamp").ids and fewer.special == whole.special
    assert sizes.without(weights_dir() / "encoder", np.zeros(30_522, dtype=bool), tmp_path) == 5
    assert TextTokenizer(tmp_path).pieces("a lamp").ids == [whole.unknown] * 2


@pytest.mark.thorough
def test_from_end_to_end(small: Path, tmp_path: Path) -> None:
    import torch

    from ragqa.models.span_reader import SpanReader
    from ragqa.runtime.export import export

    torch.manual_seed(0)
    SpanReader.from_encoder(small).save(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    export(small, tmp_path / "encoder")
    articles = []
    for title in [next(f"w{n}" for n in range(999) if held_out(f"w{n}", SHARE) == held) for held in (True, False)]:
        text = f"{title} w50 w700 w1 w2"
        asked = [{"id": "1", "question": "w63", "answers": [{"text": "w700", "answer_start": text.index("w700")}]}] * 3
        articles.append({"title": title, "paragraphs": [{"context": text, "qas": asked}]})
    (tmp_path / "squad.json").write_text(json.dumps({"data": articles}))
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "0", "title": "w3", "text": "w4 w4"}) + "\n")
    build_index([tmp_path / "c.jsonl"], tmp_path / "c.index", IndexConfig(retriever="bm25"))
    where = {"--model": tmp_path / "model", "--encoder": tmp_path / "encoder", "--squad": tmp_path / "squad.json"}
    where |= {"--index": tmp_path / "c.index", "--work": tmp_path / "work", "--out": tmp_path / "sizes.json"}
    sizes.main([str(part) for pair in {**where, "--judged-by": 1}.items() for part in pair])
    found = json.loads((tmp_path / "sizes.json").read_text())
    assert found["questions"].startswith("2 of held-out articles")
    rows = {each["arm"]: each for each in found["rows"][:3]}
    assert list(rows) == ["float32", "own table", "shared table"]
    table = 1105 * 32 / 1e6  # 8 bits a weight
    assert rows["own table"]["megabytes"] - rows["shared table"]["megabytes"] == pytest.approx(table, abs=0.011)
    assert rows["own table"]["em"] == rows["shared table"]["em"]
    trimmed = found["rows"][3:]
    assert [each["least"] for each in trimmed] == list(sizes.LEAST)
    # w3, w4, the other article's name, w50, w700, w1, w2 and w63 occur, w4 twice, w63 three times; and three marks stay
    assert [each["kept"] for each in trimmed] == [11, 3, 3, 3]
    assert trimmed[0]["megabytes_saved"] == round((1105 - 11) * 32 / 1e6, 2)
