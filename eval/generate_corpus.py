"""Make the corpus and the questions of the table of generators: some 55,000 blocks for all four test sets.

    python -m eval.generate_corpus --data DIR --out DIR

What the corpus holds is decided before any retriever is asked, as that of the ablation is (``eval.ablation_corpus``):

1. gold passages of NQ test-a, all paragraphs of SQuAD dev-a, gold paragraphs of NQ training questions (QED), all
   paragraphs of SQuAD train, in which its training questions find their answers, each text once;
2. whole articles of the wiki folder whose title is *said* in a question of NQ dev, or of the training questions of
   WebQuestions or CuratedTREC, at most three quarters of the room that is left, in an order drawn by the seed;
3. other whole articles, in an order drawn by the seed, until the next one would not fit.

No question of a test set has a say in 2 and 3, so that WebQuestions and CuratedTREC, whose gold passages are not known,
are searched in what there is. Articles that SQuAD has are left out: their paragraphs are in already.

OUT then holds documents.jsonl, corpus.index (``ragqa index``), questions (see ``eval.generate_questions``) and
report.json: blocks by source, questions by source and what was left out, of how many some block holds an answer.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval import generate_questions
from eval.ablation_corpus import QUESTIONS, CorpusConfig, Recipe, made
from eval.ablation_sources import NQ_DEV, SQUAD_DEV, Text, known, squad
from eval.command import command, one_line
from eval.generate_questions import DEV, SQUAD_TRAIN, TESTS, TRAIN, TREC_TEST, Wanted
from ragqa.progress import SILENT, Bars, Progress

BLOCKS = 55_000
WEBQ_TRAIN, TREC_TRAIN = "webq/train.jsonl", "curatedtrec/train.jsonl"


def texts(data: Path) -> Iterator[Text]:
    """What the ablation's corpus must hold, and the paragraphs of SQuAD train."""
    yield from known(data)
    yield from squad(data / SQUAD_TRAIN, "squad-train")


RECIPE = Recipe(texts, asked=(NQ_DEV, WEBQ_TRAIN, TREC_TRAIN), squad=(SQUAD_DEV, SQUAD_TRAIN))


def make(data: Path, out: Path, blocks: int, wanted: Wanted, *, progress: Progress = SILENT) -> dict[str, Any]:
    """Write all of it into ``out``, unless it is there; what ``report.json`` says. Raises as the ablation's does."""
    config = CorpusConfig(data=data, out=out, blocks=blocks, seed=wanted.seed)
    folder = out / QUESTIONS
    files = {name: folder / name for name in (TRAIN, DEV)} | {file: data / file for file in TESTS if file != TREC_TEST}
    return made(
        config,
        {"blocks": blocks, **asdict(wanted)},
        RECIPE,
        lambda: generate_questions.write(data, folder, wanted),
        files,
        progress,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of nq, webq, curatedtrec, squad and wiki")
    add("--out", type=Path, required=True)
    add("--blocks", type=int, default=BLOCKS)
    add("--dev", type=int, default=Wanted.dev, help="held-out questions of NQ, and as many of SQuAD")
    add("--squad", type=int, help="training questions of SQuAD; default: all")
    add("--seed", type=int, default=0)
    args = parser.parse_args()
    wanted = Wanted(dev=args.dev, squad=args.squad, seed=args.seed)
    with one_line():
        report = make(args.data, args.out, args.blocks, wanted, progress=Bars())
        print(json.dumps({"command": command(), **report}, indent=1))


if __name__ == "__main__":
    main()
