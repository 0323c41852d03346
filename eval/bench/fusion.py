"""Which weight BM25 gets beside the cosine, chosen on training questions of two data sets.

    python -m eval.bench.fusion --squad train-v1.1.json.xz --nq train-with-passages.jsonl.xz \
        --work DIR --out docs/measurements/fusion.json

Gold-paragraph accuracy over SQuAD's train paragraphs (questions of held-out articles) and over the
paragraphs of NQ's train questions (QED).
"""

import argparse
import json
import lzma
from collections import defaultdict
from pathlib import Path

import numpy as np

from eval.bench.record import record
from pipelines.calibrate.fit import index_of
from pipelines.common.data_sets import SHARE, held_out
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.progress import Bars
from ragqa.questions import read_squad
from ragqa.retrieval.base import Ranker
from ragqa.retrieval.hybrid import Hybrid
from ragqa.retrieval.registry import open_retriever

WEIGHTS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1)
KS = (1, 5, 20)


def squad(file: Path, work: Path) -> tuple[Path, list[tuple[str, str]]]:
    """Index, and pairs of question and gold paragraph."""
    paragraphs = list(read_squad(file))
    pairs = [(q.text, p.text) for p in paragraphs if held_out(p.title, SHARE) for q in p.questions]
    return index_of(paragraphs, work / "squad-train.index"), pairs


def nq(file: Path, work: Path) -> tuple[Path, list[tuple[str, str]]]:
    """Index, and pairs of question and gold paragraph."""
    with lzma.open(file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    corpus = work / "nq-train.jsonl"
    texts = dict.fromkeys((row["paragraph_text"], row["title_text"]) for row in rows)
    documents = [{"id": str(n), "title": title, "text": text} for n, (text, title) in enumerate(texts)]
    corpus.write_text("".join(json.dumps(d) + "\n" for d in documents))
    out = work / "nq-train.index"
    if not (out / "manifest.json").is_file():
        build_index([corpus], out, IndexConfig(block_size=10_000), progress=Bars())
    return out, [(row["question_text"], row["paragraph_text"]) for row in rows]


def accuracy(ranker: Ranker, questions: list[str], gold: list[set[int]]) -> dict[str, float]:
    """Share in % of the questions of whose gold rows (one text under several titles) one is among the first k."""
    found = ranker.rank(questions, max(KS))
    return {
        f"@{k}": round(100 * float(np.mean([bool(g & set(r.rows[:k])) for g, r in zip(gold, found, strict=True)])), 1)
        for k in KS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--nq", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=1500, help="of each data set")
    args = parser.parse_args()
    figures = {}
    for name, (index, pairs) in {"SQuAD": squad(args.squad, args.work), "NQ": nq(args.nq, args.work)}.items():
        order = np.random.default_rng(0).permutation(len(pairs))[: args.questions]
        retriever = open_retriever(index, "hybrid")
        rows_of: dict[str, set[int]] = defaultdict(set)
        for batch in retriever.passages.iter_batches():
            for passage in batch:
                rows_of[passage.text.strip()].add(passage.id)
        chosen = [pairs[n] for n in order if pairs[n][1].strip() in rows_of]
        questions, gold = [q for q, _ in chosen], [rows_of[text.strip()] for _, text in chosen]
        hybrid = retriever.ranker
        assert isinstance(hybrid, Hybrid)
        systems: dict[str, Ranker] = {"dense": hybrid.dense, "bm25": hybrid.bm25}
        systems["reciprocal ranks"] = Hybrid(hybrid.dense, hybrid.bm25, fusion="rrf")
        systems |= {f"cosine + {w} BM25": Hybrid(hybrid.dense, hybrid.bm25, weight=w) for w in WEIGHTS}
        rows = {system: accuracy(ranker, questions, gold) for system, ranker in systems.items()}
        figures[name] = {"passages": len(retriever.passages), "questions": len(questions), **rows}
    record(
        args.out,
        {"gold_paragraph_accuracy_percent": figures},
        corpus="SQuAD 1.1 train paragraphs; paragraphs of NQ train questions (QED)",
        questions="training questions: SQuAD's held-out articles, NQ train with passages",
    )


if __name__ == "__main__":
    main()
