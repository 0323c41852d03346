"""What the reader's size costs: megabytes and exact match of 8 bits, of a shared table, of a trimmed vocabulary.

    python -m eval.bench.sizes --model runs/reader/model --encoder ragqa/weights/encoder --work DIR \\
        --squad squad/train-v1.1.json.xz --index wiki.index --out docs/measurements/sizes.json

Asked are questions of the articles of SQuAD train that were held out, beside their own paragraphs; nothing is trained.

- ``float32``: the torch weights; ``own table``: their export; ``shared table``: their export with the word embeddings
  of ``--encoder``, where they are those. With ``--unfrozen DIR`` the export of a reader that learned its own.
- ``trimmed``: without the wordpieces that occur less than so many times in the passages of ``--index`` and in SQuAD's
  other articles and their questions; words are cut into those that are left. Their rows of the table are the megabytes
  saved. What that costs an encoder which shares the table, and so retrieval, is not measured.

Megabytes are those of the reader and the encoder together, tokenizers included.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.bench.record import record
from eval.command import check, one_line
from pipelines.common.data_sets import SHARE, held_of, held_out, split
from pipelines.span_reader.exam import gold_exam
from ragqa import artefacts
from ragqa.errors import BadInput, Mismatch
from ragqa.progress import Bars, Progress
from ragqa.questions import read_questions
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import ExtractiveReader
from ragqa.retrieval.registry import open_retriever
from ragqa.runtime.export import export
from ragqa.runtime.scorer import load_scorer
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Question

LEAST = (1, 10, 100, 1000)
"""Times that a wordpiece has to occur to be kept."""


def without(tokenizer: Path, kept_V: np.ndarray, out: Path) -> int:
    """Write a tokenizer.json that lacks the pieces which are not kept, into ``out``; how many it has.

    A word whose piece is gone is cut into smaller ones; where that cannot be done it is read as [UNK]. The others keep
    their ids, so that the model need not be made anew. Those that every sequence needs stay.

    Raises:
        BadInput: it is no WordPiece: others' pieces are made of each other.
    """
    told = json.loads((tokenizer / "tokenizer.json").read_text())
    if told["model"]["type"] != "WordPiece":
        raise BadInput(f"{tokenizer}: a vocabulary is trimmed of WordPiece only, not of {told['model']['type']}")
    stays = {*TextTokenizer(tokenizer).special, *(each["id"] for each in told["added_tokens"])}
    told["model"]["vocab"] = {
        piece: id
        for piece, id in told["model"]["vocab"].items()
        if kept_V[id] or id in stays or piece == told["model"]["unk_token"]
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_text(json.dumps(told))
    return len(told["model"]["vocab"])


def occurrences(tokenizer: TextTokenizer, texts: Iterable[list[str]], size: int) -> np.ndarray:
    """``[V]``: how often each of ``size`` wordpieces occurs in batches of texts."""
    count_V = np.zeros(size, dtype=np.int64)
    for batch in texts:
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *(each.ids for each in tokenizer.many(batch))])
        count_V += np.bincount(ids.astype(np.int64), minlength=size)
    return count_V


def texts(index: Path, squad: Path, share: float, progress: Progress) -> Iterator[list[str]]:
    """Titles and texts of the passages, then of the articles that are not held out, with their questions."""
    store = open_retriever(index, "bm25").passages
    with progress.step("counting wordpieces", len(store), "passages") as step:
        done = 0
        for batch in store.iter_batches():
            yield [passage.titled for passage in batch]
            done += len(batch)
            step.at(done)
    seen: set[str] = set()
    for question in read_questions(squad):
        if not held_out(question.titles[0], share):
            new = [text for text in (*question.titles, *question.passages) if text not in seen]
            seen.update(new)
            yield [question.text, *new]


def asked(scorer: Any, questions: Sequence[Question], name: str, progress: Progress) -> dict[str, float]:
    """Exact match and F1 of a reader beside the gold paragraphs."""
    found = gold_exam(questions).taken(ExtractiveReader(scorer, UNCALIBRATED), name, progress)
    return {"em": round(found["gold_em"], 4), "f1": round(found["gold_f1"], 4)}


def megabytes(*folders: Path) -> float:
    """Of the files of directories, each counted once."""
    files = {file.resolve() for folder in folders for file in folder.rglob("*") if file.is_file()}
    return round(sum(file.stat().st_size for file in files) / 1e6, 2)


def arms(args: argparse.Namespace, questions: Sequence[Question], progress: Progress) -> Iterator[dict[str, Any]]:
    """A row for each form of the reader."""

    def row(arm: str, reader: Path) -> dict[str, Any]:
        figures = asked(load_scorer(reader), questions, arm, progress)
        return {"arm": arm, "megabytes": megabytes(reader, args.encoder), **figures}

    own, shared, unfrozen = (args.work / name for name in ("own", "shared", "unfrozen"))
    yield row("float32", args.model)
    export(args.model, own)
    yield row("own table", own)
    try:
        export(args.model, shared, share=args.encoder)
        yield row("shared table", shared)
    except Mismatch as error:
        yield {"arm": "shared table", "not possible": str(error)}
    if args.unfrozen:
        export(args.unfrozen, unfrozen)
        yield row("own table, learned", unfrozen)
    yield from trimmed(args, own, questions, progress)


def trimmed(
    args: argparse.Namespace, reader: Path, questions: Sequence[Question], progress: Progress
) -> Iterator[dict[str, Any]]:
    """A row for each of ``LEAST``, of an export."""
    scorer, (size, width) = load_scorer(reader), artefacts.read(reader, "reader").config["embeddings"]["shape"]
    count_V = occurrences(scorer.tokenizer, texts(args.index, args.squad, args.held_out, progress), size)
    for least in LEAST:
        fewer = args.work / f"least-{least}"
        kept = without(reader, count_V >= least, fewer)
        scorer.tokenizer = TextTokenizer(fewer)
        saved = round((size - kept) * width / 1e6, 2)
        figures = asked(scorer, questions, f"at least {least} times", progress)
        yield {"arm": "trimmed", "least": least, "kept": kept, "megabytes_saved": saved, **figures}


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", type=Path, required=True, help="torch directory of the reader")
    add("--unfrozen", type=Path, help="torch directory of one that was trained with --no-freeze-embeddings")
    add("--encoder", type=Path, required=True, help="export of the encoder, whose table is shared")
    add("--squad", type=Path, required=True, help="SQuAD 1.1 train file")
    add("--index", type=Path, required=True, help="index whose passages say which wordpieces are of use")
    add("--held-out", type=float, default=SHARE, help="share of SQuAD's articles that the training held out")
    add(
        "--judged-by",
        type=int,
        default=500,
        help="of their questions, so many chose the weights (--sample of training)",
    )
    add("--seed", type=int, default=0, help="of the training, which drew them")
    add("--count", type=int, default=2000, help="questions that are asked")
    add("--work", type=Path, required=True, help="where exports are kept")
    add("--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    with one_line():
        go(args)


def go(args: argparse.Namespace) -> None:
    """Export, ask, and write what came of it."""
    check(args, "count")
    if (args.model / artefacts.MANIFEST).is_file():
        raise BadInput(f"--model {args.model} is an export: torch weights are needed, which this exports")
    held = held_of(args.squad, args.held_out)
    questions = split(held, args.judged_by, args.seed)[1][: args.count]
    if not questions:
        raise BadInput(f"{args.squad}: of {len(held)} held-out questions --judged-by {args.judged_by} leaves none")
    args.work.mkdir(parents=True, exist_ok=True)
    rows = list(arms(args, questions, Bars()))
    record(
        args.out,
        {"rows": rows},
        corpus=f"wordpieces of {args.index.name} and of SQuAD train without the held-out articles",
        questions=f"{len(questions)} of held-out articles of SQuAD train, beside their paragraphs",
    )


if __name__ == "__main__":
    main()
