"""How well the tagger by rule finds salient spans, on 420 sentences of Wikipedia labelled by hand, and how fast.

    python -m eval.bench.salient --wiki DIR --out docs/measurements/salient.json

The labels lie in ``eval/bench/salient.jsonl``, a sentence a line: archive, document, first character in its text,
length and digest of the sentence, and spans as [start, end, label] from there. The sentences (``sentence_spans``, 6
to 60 words) were drawn at random with a fixed seed, at most one an article, 105 an archive, and labelled and
committed before there were any rules. The errors on 120 of them (``dev``) were looked at while the rules were
written, those on 300 (``test``) were not, and were measured once. But who wrote the rules had labelled, and so had
read, the 300 too: another annotator would find more to disagree with.

What is labelled. Names as in CoNLL-2003: PER, LOC, ORG, MISC, the longest name and none within it, without article,
title (President, Pope) or possessive. Buildings and heavenly bodies are LOC; nationalities, languages, religions,
works, events, products, programs, file formats, Latin names of taxa and eponyms (the Galois in Galois theory) are
MISC; terms written as acronyms (DNA, CPU) and capitalised jobs are nothing. DATE: days, months, years, decades,
centuries, with what modifies them (late August) and their era, without ``the`` or ``year``; ranges with a dash are
one, others two; of relative ones today, next/last/following/previous/same/that with a unit, and two years later; no
seasons, durations or times of day. NUMBER: cardinals and ordinals in digits, words and Roman numerals, ``million``
included, unit, percent and currency signs not; no lone ``one``, no vague hundreds, none within names or formulas,
``first`` as an adverb neither.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from eval.bench.process import memory
from eval.bench.record import record
from ragqa.corpus.sources import read_documents
from ragqa.evaluation.statistics import bootstrap_ratio
from ragqa.pretraining.salient import KINDS, RuleTagger, Tagger

LABELS = Path(__file__).with_suffix(".jsonl")
KIND_OF = dict.fromkeys(("PER", "LOC", "ORG", "MISC"), "name") | {"DATE": "date", "NUMBER": "number"}
SAMPLE = 15
"""Of so many articles, one is in the sample that the tagger learns words from; those with labels never are."""
SPEED_MB = 5
_CALENDAR = re.compile(
    r"[0-9]+s?(?: BC)?|(?:January|February|March|April|May|June|July|August|September|October|November|December) [0-9]+"
    r"|[0-9]+\w\w century(?: BC)?"
)

Span = tuple[int, int, str]


@dataclass(frozen=True)
class Labelled:
    """A sentence and what was marked in it: start, end, label."""

    split: str
    title: str
    text: str
    spans: list[Span]


@dataclass
class Wiki:
    """What one reading of the archives gives."""

    sentences: list[Labelled]
    titles: list[str]
    texts: list[str]
    """A sample of the articles."""


def read_labels() -> dict[tuple[str, str], dict[str, Any]]:
    """The lines of LABELS by archive and document."""
    rows = map(json.loads, LABELS.read_text().splitlines())
    return {(row["archive"], row["document"]): row for row in rows}


def digest(sentence: str) -> str:
    return blake2b(sentence.encode(), digest_size=4).hexdigest()


def labelled(row: dict[str, Any], title: str, text: str) -> Labelled:
    """The sentence a line of LABELS means, out of its document's text.

    Raises ValueError where another sentence stands there.
    """
    sentence = text[row["offset"] : row["offset"] + row["length"]]
    if digest(sentence) != row["digest"]:
        raise ValueError(f"{row['archive']}, document {row['document']}: not the sentence that was labelled")
    return Labelled(row["split"], title, sentence, [(start, end, label) for start, end, label in row["spans"]])


def read_wiki(folder: Path) -> Wiki:
    """The labelled sentences, every title, and a sample of the other texts."""
    labels, wiki = read_labels(), Wiki([], [], [])
    for archive in sorted({archive for archive, _ in labels}):
        for document in read_documents([folder / archive]):
            wiki.titles.append(document.title)
            if row := labels.get((archive, document.id)):
                wiki.sentences.append(labelled(row, document.title, document.text))
            elif len(wiki.titles) % SAMPLE == 0:
                wiki.texts.append(document.text[document.body :])
    return wiki


def scores(sentences: list[Labelled], tagger: Tagger) -> dict[str, Any]:
    """Precision, recall and F1 of each kind, and of all spans whatever kind the tagger calls them."""
    wanted = [[(start, end, KIND_OF[label]) for start, end, label in sentence.spans] for sentence in sentences]
    found = [[(s.start, s.end, s.kind) for s in tagger.spans(sentence.text)] for sentence in sentences]
    table = {kind: _of_kind(found, wanted, partial(_is, kind)) for kind in KINDS}
    table["any kind"] = _of_kind(found, wanted, lambda span: True)
    return table | {"recall of labels": _of_labels(sentences, found)}


def _is(kind: str, span: Span) -> bool:
    return span[2] == kind


def _of_kind(found: list[list[Span]], wanted: list[list[Span]], belongs: Callable[[Span], bool]) -> dict[str, Any]:
    ours = [[span[:2] for span in spans if belongs(span)] for spans in found]
    gold = [[span[:2] for span in spans if belongs(span)] for spans in wanted]
    row: dict[str, Any] = {"labelled": sum(map(len, gold)), "found": sum(map(len, ours))}
    for name, same in (("exact", _equal), ("overlap", _overlap)):
        pairs = list(zip(ours, gold, strict=True))
        right = [sum(any(same(a, b) for b in theirs) for a in mine) for mine, theirs in pairs]
        hit = [sum(any(same(a, b) for a in mine) for b in theirs) for mine, theirs in pairs]
        row[name] = {
            "precision": _interval(right, [len(mine) for mine, _ in pairs]),
            "recall": _interval(hit, [len(theirs) for _, theirs in pairs]),
            "f1": _interval(
                [r + h for r, h in zip(right, hit, strict=True)], [len(mine) + len(theirs) for mine, theirs in pairs]
            ),
        }
    return row


def _of_labels(sentences: list[Labelled], found: list[list[Span]]) -> dict[str, Any]:
    """Of the spans with each label, how many were found as names, dates or numbers."""
    table = {}
    for label, kind in KIND_OF.items():
        gold = [[span for span in sentence.spans if span[2] == label] for sentence in sentences]
        ours = [[span for span in spans if span[2] == kind] for spans in found]
        row: dict[str, Any] = {"labelled": sum(map(len, gold))}
        for name, same in (("exact", _equal), ("overlap", _overlap)):
            hit = [sum(any(same(a, b) for a in o) for b in g) for o, g in zip(ours, gold, strict=True)]
            row[name] = _interval(hit, list(map(len, gold)))
        table[label] = row
    return table


def _equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return a[:2] == b[:2]


def _overlap(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _interval(above: list[int], below: list[int]) -> dict[str, float]:
    """A share in percent with its 95 % interval, sentences resampled."""
    return {name: round(100 * value, 1) for name, value in asdict(bootstrap_ratio(above, below)).items()}


def speed(tagger: Tagger, texts: list[str]) -> float:
    """Megabytes of UTF-8 a second of one core's time."""
    done, began = 0, time.process_time()
    for text in texts:
        tagger.spans(text)
        done += len(text.encode())
        if done > SPEED_MB * 1e6:
            break
    return round(done / 1e6 / (time.process_time() - began), 2)


def made_titles(titles: list[str], count: int) -> Iterator[str]:
    """``count`` different titles of the length of real ones; a third of them with a word that no other has."""
    rng = random.Random(0)
    for number in range(count):
        title = rng.choice(titles)
        yield f"{title} {title[::-1].split()[0].title()}{number:x}" if number % 3 == 0 else f"{title} {number}"


def memory_of(titles: list[str], count: int) -> dict[str, Any]:
    """Seconds of a core to learn ``count`` titles, and MB at most and after, in a process of its own."""
    command = [sys.executable, "-m", "eval.bench.salient", "--wiki", ".", "--out", ".", "--child", str(count)]
    done = subprocess.run(command, input="\n".join(titles), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def child(count: int) -> None:
    titles = sys.stdin.read().split("\n")
    before, began = memory(), time.process_time()
    tagger = RuleTagger(made_titles(titles, count))
    seconds, after = time.process_time() - began, memory()
    tagger.spans("Bosnia and Herzegovina")
    kept, peak = after["rss_mb"] - before["rss_mb"], after["peak_rss_mb"] - before["rss_mb"]
    print(json.dumps({"titles": count, "seconds": round(seconds, 1), "peak_mb": peak, "kept_mb": kept}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wiki", type=Path, required=True, help="folder with A?.tar.xz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--titles", type=int, default=6_000_000, help="made up, to measure memory; 0: not measured")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    wiki = read_wiki(args.wiki)
    sentences = [sentence for sentence in wiki.sentences if sentence.split == args.split]
    taggers = {
        "rules": RuleTagger(),
        "rules and titles": RuleTagger(wiki.titles),
        "rules, titles and texts": RuleTagger(wiki.titles, wiki.texts),
    }
    prose = [sentence for sentence in sentences if not _CALENDAR.fullmatch(sentence.title)]
    figures: dict[str, Any] = {
        name: {
            f"{len(sentences)} sentences": scores(sentences, tagger),
            f"the {len(prose)} of them in articles on neither years nor days": scores(prose, tagger),
            "mb_per_s": speed(tagger, wiki.texts),
        }
        for name, tagger in taggers.items()
    }
    if args.titles:
        figures["memory"] = memory_of(wiki.titles, args.titles)
    record(
        args.out,
        {"split": args.split, **figures},
        corpus=f"{len(wiki.titles):,} articles of English Wikipedia of 2015 (WikiExtractor)",
        questions=f"{len(sentences)} sentences labelled by hand; intervals are 95 %, sentences resampled",
    )


if __name__ == "__main__":
    main()
