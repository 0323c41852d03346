"""Make the corpus of the ablation: some 40,000 blocks that hold the gold passages that are known.

    python -m eval.ablation_corpus --data DIR --out DIR

What it holds is decided before any retriever is asked:

1. gold passages of NQ test-a, all paragraphs of SQuAD dev-a, gold paragraphs of NQ training questions (QED), each
   text once;
2. whole articles of the wiki folder whose title is *said* in a question of NQ dev, at most three quarters of the
   room that is left, in an order drawn by the seed;
3. other whole articles, in an order drawn by the seed, until the next one would not fit.

A title is said if its words stand in a row in a question, both normalised (lower case, no punctuation, no articles;
a title without what it has in brackets at its end). One of a single word must be a word of at least four letters that
no more than three of the questions say. Articles that SQuAD dev-a has are left out: their paragraphs are in already.

OUT then holds documents.jsonl, corpus.index (``ragqa index``), questions (see ``eval.ablation_questions``) and
report.json: blocks by source, and of how many questions some block holds an answer at all.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from eval import ablation_questions
from eval.ablation_sources import NQ_DEV, NQ_TEST, SQUAD_DEV, Once, Text, known, wiki
from eval.command import command, one_line
from ragqa.artefacts import resume
from ragqa.corpus.blocks import make_word_splitter as cut_by_words
from ragqa.corpus.sources import Document
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.progress import SILENT, Bars, Progress
from ragqa.questions import read_questions, read_squad
from ragqa.text import normalize_answer

BLOCKS, RECALL, DEV = 40_000, 2_000, 500
SAID = 0.75
"""Share of the room for articles that those whose title is said may take: else all would be of what is asked for."""
RARE, LETTERS = 3, 4
"""A title of one word is said by at most so many questions, and has at least so many letters."""
LONGEST = 10
"""Words of a title that is looked for."""
DOCUMENTS, INDEX, QUESTIONS, REPORT = "documents.jsonl", "corpus.index", "questions", "report.json"

_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")
_SPLIT = cut_by_words()


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """What the corpus is made of."""

    data: Path
    """Folder of the data sets: nq, squad, wiki."""
    out: Path
    blocks: int = BLOCKS
    """Of 100 words, at most."""
    recall: int = RECALL
    """NQ dev questions on which retrieval is scored."""
    dev: int = DEV
    """Others that are asked while something is trained."""
    seed: int = 0


@dataclass(frozen=True)
class Recipe:
    """What decides which texts a corpus holds."""

    known: Callable[[Path], Iterator[Text]]
    """Texts of the data folder that it must hold."""
    asked: tuple[str, ...]
    """Files of questions that say titles."""
    squad: tuple[str, ...]
    """Files of SQuAD whose paragraphs are known: articles of their titles are left out of the wiki folder's."""


ABLATION = Recipe(known, asked=(NQ_DEV,), squad=(SQUAD_DEV,))


@dataclass(frozen=True)
class Article:
    """An article of the wiki folder, before it is chosen."""

    id: str
    blocks: int
    said: bool
    """Its title is said in a question."""


class Said:
    """Which titles are said in some questions."""

    def __init__(self, questions: Iterable[str]) -> None:
        self._times: Counter[str] = Counter()
        for question in questions:
            own = normalize_answer(question).split()
            runs = {" ".join(own[a : a + n]) for a in range(len(own)) for n in range(1, min(LONGEST, len(own) - a) + 1)}
            self._times.update(runs)

    def __contains__(self, title: str) -> bool:
        name = bare(title)
        if " " in name:
            return name in self._times
        return name.isalpha() and len(name) >= LETTERS and 0 < self._times[name] <= RARE


def bare(title: str) -> str:
    """A title, normalised, without what stands in brackets at its end."""
    return normalize_answer(_BRACKETS.sub("", title))


def size(document: Document) -> int:
    """Blocks of a document."""
    return sum(1 for _ in _SPLIT(document.text, document.body))


def drawn(articles: Iterable[Article], seed: int) -> list[Article]:
    """Articles in an order that depends on the seed and their ids alone."""
    return sorted(articles, key=lambda each: blake2b(f"{seed} {each.id}".encode(), digest_size=16).digest())


def filled(articles: Iterable[Article], room: int) -> list[Article]:
    """The first articles, up to the one that would not fit into ``room`` blocks."""
    chosen: list[Article] = []
    for article in articles:
        room -= article.blocks
        if room < 0:
            break
        chosen.append(article)
    return chosen


def choose(articles: Sequence[Article], room: int, seed: int) -> dict[str, str]:
    """Ids of the articles that are taken, and ``said`` or ``random``; see the head of this file."""
    said = filled(drawn((each for each in articles if each.said), seed), int(SAID * room))
    ids = {each.id for each in said}
    rest = (each for each in articles if each.id not in ids)
    others = filled(drawn(rest, seed + 1), room - sum(each.blocks for each in said))
    return {**{each.id: "random" for each in others}, **dict.fromkeys(ids, "said")}


def make(config: CorpusConfig, *, progress: Progress = SILENT) -> dict[str, Any]:
    """Write all of it into ``config.out``, unless it is there; what ``report.json`` says.

    Raises:
        BadInput: a file is missing or damaged, the known texts alone are more than is wanted, or ``out`` holds a
            corpus that was made otherwise.
    """
    asked = {name: value for name, value in asdict(config).items() if name not in ("data", "out")}

    def questions() -> dict[str, Any]:
        folder = config.out / QUESTIONS
        return asdict(
            ablation_questions.write(config.data, folder, recall=config.recall, dev=config.dev, seed=config.seed)
        )

    return made(config, asked, ABLATION, questions, question_files(config), progress)


def made(
    config: CorpusConfig,
    asked: dict[str, Any],
    recipe: Recipe,
    questions: Callable[[], dict[str, Any]],
    files: dict[str, Path],
    progress: Progress,
) -> dict[str, Any]:
    """Write all of a corpus by a recipe, unless it is there with the settings ``asked``; what ``report.json`` says.

    ``questions`` writes them and says how many they are; of ``files`` it is told how many the corpus answers.
    """
    if (config.out / REPORT).is_file():
        before: dict[str, Any] = json.loads((config.out / REPORT).read_text())
        if before["settings"] != asked:
            raise BadInput(f"{config.out} holds a corpus of other settings ({before['settings']}): choose another")
        return before
    config.out.mkdir(parents=True, exist_ok=True)
    counts = questions()
    sources = write(config, recipe, progress)
    index = config.out / INDEX
    build_index([config.out / DOCUMENTS], index, IndexConfig(retriever="bm25"), progress=progress)
    report = {
        "settings": asked,
        "blocks": len(PassageStore.open(index / "passages")),
        "sources": sources,
        "questions": counts,
        "answered": answered(index, files, progress),
    }
    resume.write_whole(config.out / REPORT, json.dumps(report, indent=1) + "\n")
    return report


def question_files(config: CorpusConfig) -> dict[str, Path]:
    """The sets of which it is told how many questions the corpus answers."""
    data, own = config.data, config.out / QUESTIONS
    sampled = {f"nq {name}": own / f"{name}.jsonl" for name in ("recall", "dev", "train")}
    return {"nq dev, all": data / NQ_DEV, **sampled, "nq test-a": data / NQ_TEST, "squad dev-a": data / SQUAD_DEV}


def write(config: CorpusConfig, recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """Write documents.jsonl, aside and then renamed; texts and blocks of each source, and what was left out."""
    tally: dict[str, Counter[str]] = {}
    once, aside = Once(), config.out / f".{DOCUMENTS}.writing"
    with aside.open("w", encoding="utf-8") as file:

        def put(text: Text, blocks: int) -> None:
            row = {"id": text.id, "title": text.title, "text": text.text}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            tally.setdefault(text.source, Counter()).update(documents=1, blocks=blocks)

        for text in once(recipe.known(config.data)):
            put(text, sum(1 for _ in _SPLIT(text.text, 0)))
        room = config.blocks - sum(each["blocks"] for each in tally.values())
        if room < 0:
            raise BadInput(
                f"the known texts alone are {config.blocks - room} blocks: ask for more than {config.blocks}"
            )
        articles = survey(config, recipe, progress)
        chosen = choose(articles, room, config.seed)
        sizes = {each.id: each.blocks for each in articles}
        for text in once(taken(config.data / "wiki", chosen, progress)):
            put(text, sizes[text.id.removeprefix("wiki-")])
    aside.replace(config.out / DOCUMENTS)
    said = [each.blocks for each in articles if each.said]
    found = {"articles": len(articles), "said": len(said), "blocks said": sum(said), "texts left out": once.twice}
    return {**{source: dict(each) for source, each in tally.items()}, "wiki folder": found}


def survey(config: CorpusConfig, recipe: Recipe, progress: Progress) -> list[Article]:
    """The articles of the wiki folder that SQuAD's files do not have: ids, sizes, whether their titles are said."""
    said = Said(question.text for file in recipe.asked for question in read_questions(config.data / file))
    had = {bare(paragraph.title) for file in recipe.squad for paragraph in read_squad(config.data / file)}
    return [
        Article(each.id, size(each), each.title in said)
        for each in wiki(config.data / "wiki", "titles", progress)
        if bare(each.title) not in had
    ]


def taken(folder: Path, chosen: dict[str, str], progress: Progress) -> Iterator[Text]:
    """The chosen articles, in the order of the folder."""
    for each in wiki(folder, "articles", progress):
        if each.id in chosen:
            yield Text(chosen[each.id], f"wiki-{each.id}", each.title, each.text[each.body :].strip())


def answered(index: Path, files: dict[str, Path], progress: Progress) -> dict[str, dict[str, float]]:
    """Of each file, how many questions have an answer in some passage of the index, by DPR's rule."""
    asked = {name: list(ablation_questions.answers(file)) for name, file in files.items()}
    finder = AnswerFinder([answers for each in asked.values() for answers in each])
    store, held = PassageStore.open(index / "passages"), set()
    with progress.step("answers", len(store), "passages") as step:
        for passages in store.iter_batches():
            for passage in passages:
                held.update(finder.held(passage.text))
            step.at(passages[-1].id + 1)
    found, first = {}, 0
    for name, each in asked.items():
        right = sum(number in held for number in range(first, first + len(each)))
        found[name] = {"questions": len(each), "answered": right, "share": round(right / len(each), 4)}
        first += len(each)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of nq, squad and wiki")
    add("--out", type=Path, required=True)
    add("--blocks", type=int, default=BLOCKS)
    add("--recall", type=int, default=RECALL)
    add("--dev", type=int, default=DEV)
    add("--seed", type=int, default=0)
    args = parser.parse_args()
    with one_line():
        print(json.dumps({"command": command(), **make(CorpusConfig(**vars(args)), progress=Bars())}, indent=1))


if __name__ == "__main__":
    main()
