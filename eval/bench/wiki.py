"""The wiki folder through ``ragqa index``, and shell to answer over what comes out.

    python -m eval.bench.wiki --wiki DIR --work DIR --out docs/measurements/wiki.json

BM25 over all four parts, hybrid over the first files of part AA: seconds, peak RSS, size on disk, and the wall time of
``ragqa ask`` over each.
"""

import argparse
import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.process import timed
from eval.bench.record import record

QUESTIONS = (
    "who wrote the opera the magic flute",
    "when did the battle of hastings take place",
    "what is the capital of australia",
    "who discovered penicillin",
    "how long is the river danube",
    "what language is spoken in brazil",
    "who painted guernica",
)
RAGQA = str(Path(sys.executable).parent / "ragqa")


def made(paths: list[Path], out: Path, retriever: str) -> dict[str, Any]:
    """Index afresh; what it took."""
    shutil.rmtree(out, ignore_errors=True)
    run = timed([RAGQA, "index", *map(str, paths), "--out", str(out), "--retriever", retriever, "--json"])
    counts = json.loads(run["out"])
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    return {
        "retriever": retriever,
        "documents": counts["documents"],
        "passages": counts["passages"],
        "seconds": round(run["seconds"], 1),
        "peak_rss_mb": round(run["rss_mb"]),
        "index_mb": round(size / 1e6),
    }


def asked(index: Path) -> dict[str, Any]:
    """Shell to answer of each question, after one that warms the disk's cache."""
    timed([RAGQA, "ask", QUESTIONS[0], "--index", str(index)])
    runs = [timed([RAGQA, "ask", question, "--index", str(index), "--json"]) for question in QUESTIONS]
    said = {json.loads(run["out"])["question"]: json.loads(run["out"])["answer"] for run in runs}
    return {
        "shell_to_answer_s": round(float(np.median([run["seconds"] for run in runs])), 2),
        "shell_to_answer_worst_s": round(max(run["seconds"] for run in runs), 2),
        "ask_peak_rss_mb": round(max(run["rss_mb"] for run in runs)),
        "answers": said,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wiki", type=Path, required=True, help="folder with A?.tar.xz")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--files", type=int, default=10, help="of the 100 of part AA, to be embedded")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    parts = sorted(args.wiki.glob("A?.tar.xz"))
    with tarfile.open(parts[0]) as tar:
        tar.extractall(args.work, filter="data")
    some = sorted((args.work / "AA").glob("wiki_*"))[: args.files]
    figures = {}
    embedded = f"part AA, files {some[0].name} to {some[-1].name}"
    for name, paths, retriever in (("whole folder", parts, "bm25"), (embedded, some, "hybrid")):
        out = args.work / f"wiki-{retriever}.index"
        figures[name] = {**made(paths, out, retriever), **asked(out)}
    record(
        args.out,
        figures,
        corpus="30,729 articles of English Wikipedia of 2015 (WikiExtractor), blocks of 100 words",
        questions=f"{len(QUESTIONS)} questions in the style of NQ, written for this measurement",
    )


if __name__ == "__main__":
    main()
