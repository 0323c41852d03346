"""SQuAD, open-domain style: every paragraph is a passage, the question comes without its own.

    python -m eval.bench.squad_open --squad DIR --work DIR --out docs/measurements/squad_open.json

Gold-paragraph accuracy of each retriever, EM and F1 of the whole pipeline, and of the reader on
the gold paragraph. all-MiniLM-L6-v2 saw questions of SQuAD's train split: not zero-shot.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.progress import track

from eval.bench.record import record
from pipelines.calibrate import index_of
from ragqa.metrics import exact_match, f1
from ragqa.pipeline import Pipeline, open_retriever
from ragqa.questions import read_squad
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.base import PassageRetriever
from ragqa.retrieval.hybrid import Hybrid
from ragqa.types import Answer, Hit

KS = (1, 5, 20, 100)


def gold_accuracy(retriever: PassageRetriever, questions: list[str], gold: list[str]) -> dict[str, float]:
    """Share of the questions (in %) whose gold paragraph is among the first k."""
    places = []
    for at in track(range(0, len(questions), 64), description="retrieving"):
        hits = retriever.search(questions[at : at + 64], max(KS))
        for found, text in zip(hits, gold[at : at + 64], strict=True):
            place = next((n for n, hit in enumerate(found) if hit.passage.text == text), 10**9)
            places.append(place)
    return {f"@{k}": round(100 * float(np.mean(np.array(places) < k)), 1) for k in KS}


def scores(answers: list[Answer], gold: list[tuple[str, ...]]) -> dict[str, float]:
    """EM and F1 in %, SQuAD's rules."""
    em = [exact_match(a.text, g, unicode=None) for a, g in zip(answers, gold, strict=True)]
    overlap = [f1(a.text, g) for a, g in zip(answers, gold, strict=True)]
    return {"EM": round(100 * float(np.mean(em)), 2), "F1": round(100 * float(np.mean(overlap)), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="folder with train- and dev-a-v1.1.json.xz")
    parser.add_argument("--work", type=Path, required=True, help="where the index is kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reader", type=Path, help="another exported reader")
    parser.add_argument("--limit", type=int, help="first N questions only")
    args = parser.parse_args()
    dev = list(read_squad(args.squad / "dev-a-v1.1.json.xz"))
    corpus = [*read_squad(args.squad / "train-v1.1.json.xz"), *dev]
    index = index_of(corpus, args.work / "squad.index")
    asked = [(p, q) for p in dev for q in p.questions][: args.limit]
    questions, gold = [q.text for _, q in asked], [q.answers for _, q in asked]
    texts = [p.text.strip() for p, _ in asked]

    hybrid = open_retriever(index, "hybrid")
    dense, bm25 = open_retriever(index, "dense"), open_retriever(index, "bm25")
    fused = PassageRetriever(Hybrid(dense.ranker, bm25.ranker, fusion="rrf"), hybrid.passages)
    systems = {"dense": dense, "bm25": bm25, "hybrid (weighted)": hybrid, "hybrid (rrf)": fused}
    retrieval = {name: gold_accuracy(system, questions, texts) for name, system in systems.items()}

    pipeline = Pipeline(hybrid, ExtractiveReader.load(args.reader))
    answers = []
    for at in track(range(0, len(questions), 16), description="answering"):
        answers += pipeline.ask(questions[at : at + 16])
    by_text = {p.text: p for batch in hybrid.passages.batches() for p in batch}
    on_gold = []
    for at in track(range(0, len(questions), 64), description="gold paragraphs"):
        hits = [[Hit(by_text[text], 0.0)] for text in texts[at : at + 64]]
        on_gold += pipeline.reader.read(questions[at : at + 64], hits)
    figures = {
        "passages": len(hybrid.passages),
        "gold_paragraph_accuracy_percent": retrieval,
        "pipeline": {"k": pipeline.k, "retriever": "hybrid (weighted)", **scores(answers, gold)},
        "reader_on_gold_paragraph": scores(on_gold, gold),
    }
    record(
        args.out,
        figures,
        corpus="paragraphs of SQuAD 1.1 train and dev-a, a passage each",
        questions=f"SQuAD 1.1 dev-a, {len(questions)} questions",
    )


if __name__ == "__main__":
    main()
