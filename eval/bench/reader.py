"""What the parts of the reader's recipe are worth: each taken away in turn, then asked the test sets.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \\
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --retriever bm25 --out reader.index
    python -m eval.bench.reader --work DIR --encoder MINILM --index reader.index --asked wiki.index --data DIR \\
        --out docs/measurements/reader_ablation.json

Every arm takes as many steps from one start by the same rates; what is exported to 8 bits then reads SQuAD dev-a's gold
paragraphs, with ``--paragraphs`` what that index finds for its questions (one gold passage shows nothing of how
passages compete), and the hits of NQ, WebQuestions and CuratedTREC test-a over ``--asked``. Nothing is chosen by these
figures. The arm gold-only mines for itself; the others share what was mined. Figures of an arm are kept in its folder
as soon as they are there, and the same command goes on after whatever ended it.

The arms have the settings of the reader that is shipped, ``pipelines/span_reader/recipe.json``; others come from
``--sizes
FILE.json``, as ``{"recipe": {"steps": 3000, "lr": 3e-4}, "limit": 500}``.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from eval.ablation_sources import NQ_DEV, NQ_TRAIN, QED
from eval.bench import arms as common
from eval.bench.record import record
from eval.command import check as check_options
from eval.command import one_line
from eval.curatedtrec import CURATEDTREC
from eval.generate_questions import SQUAD_TRAIN
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Suite
from eval.webq import WEBQ
from pipelines.common.calibration import install
from pipelines.common.stages import finished
from pipelines.span_reader import train as span_reader
from pipelines.span_reader.config import ReaderConfig
from ragqa import artefacts
from ragqa.errors import BadInput
from ragqa.progress import Bars, Progress
from ragqa.reading.base import PASSAGES
from ragqa.reading.calibration import UNCALIBRATED, Calibration
from ragqa.runtime.export import export
from ragqa.training.log import read_rows

SUITES: tuple[Suite, ...] = (SQUAD, NQ, WEBQ, CURATEDTREC)
"""SQuAD's questions are read beside their own paragraphs."""
DEPTH = 20
"""Hits that are scored for answers."""
GOLD = (SQUAD_TRAIN, QED)
"""Training files of the data folder with passages."""
PAIRS, PATTERNS = (NQ_TRAIN, "webq/train.jsonl", "trivia/train.jsonl"), ("curatedtrec/train.jsonl",)
"""Those without passages, and those whose answers are patterns."""
PLACED = {"train", "patterns", "dev", "refuse", "index", "encoder", "out", "teacher", "device"}
"""Settings of a training that are not the recipe's to say."""
RECIPE = Path(span_reader.__file__).with_name("recipe.json")
"""Settings of the reader that is shipped."""
OPEN = "squad-open"
"""SQuAD's questions over an index of paragraphs."""


@dataclass(frozen=True)
class Arm:
    """The recipe, changed in one part."""

    title: str
    changed: tuple[tuple[str, Any], ...] = ()
    """Settings that are its own."""
    pairs: bool = True
    """Whether it is trained on pairs of question and answer (distant supervision)."""
    like: str | None = None
    """The arm whose weights it has: what is another is how they are run."""


ARMS = {
    "full": Arm("the whole recipe"),
    "float32": Arm("the same in float32", like="full"),
    "apart": Arm("spans of each passage normalised by themselves", (("apart", True),)),
    "gold-only": Arm("without distant supervision", pairs=False),
    "no-hard": Arm("negatives at random", (("hard", 0.0),)),
    "no-negatives": Arm("without negatives", (("negatives", 0.0),)),
    "hard-em": Arm("hard EM", (("loss", "hard"),)),
    "unfrozen": Arm("word embeddings learned, so none that the encoder shares", (("freeze_embeddings", False),)),
    "taught": Arm("taught by a larger reader (--teacher)"),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much each arm does."""

    recipe: dict[str, Any] = field(default_factory=dict)
    """Settings of ``ReaderConfig`` that are others than those of ``RECIPE``; an arm that leaves training files out
    takes their ``shares`` along."""
    limit: int | None = None
    """Questions of each test set that are answered, drawn by chance; None for all."""
    retrieval_counts: float = 0.5
    """What a standard deviation of retrieval's scores counts in reading, as ``pipelines.calibrate.fit`` found it for
    the shipped reader; the same for every arm, since much of it would spare those whose passages compare badly."""


SMOKE = Sizes(
    recipe={
        **{"steps": 3, "batch": 2, "accumulate": 1, "warmup": 1, "max_input": 64, "depth": 10, "pool": 3},
        **{"sample": 4, "eval_every": 3, "read": 2},
    },
    limit=4,
)
"""A few steps of everything: does it run from end to end?"""


@dataclass(frozen=True)
class TestSet:
    """Test questions, and where they are asked."""

    key: str
    suite: Suite
    index: Path
    gold: bool = False
    """Each is read beside its own passage instead."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where everything lies."""

    work: Path
    encoder: Path
    """Torch weights that all arms begin from."""
    index: Path
    """What training passages are found in, and those of held-out questions."""
    asked: Path
    """Index that the test questions are asked over."""
    data: Path
    paragraphs: Path | None = None
    """Index of SQuAD's paragraphs."""
    teacher: Path | None = None
    share: Path | None = None
    """Export of the encoder, whose word embeddings the exports share."""
    device: str = "cpu"

    def arm(self, name: str) -> Path:
        """The folder of an arm."""
        return self.work / name


@dataclass(frozen=True)
class Bench:
    """What the arms are trained and measured with."""

    places: Places
    sizes: Sizes
    progress: Progress

    def config(self, name: str) -> ReaderConfig:
        """The settings of an arm's training."""
        places, arm = self.places, ARMS[ARMS[name].like or name]
        recipe = {**json.loads(RECIPE.read_text()), **self.sizes.recipe}
        if unknown := set(recipe) - {each.name for each in fields(ReaderConfig)} | PLACED & set(recipe):
            raise BadInput(f"--sizes: {', '.join(sorted(unknown))}: no settings of the recipe, or said by options")
        shares = tuple(recipe.pop("shares", ()))
        pairs, patterns = (PAIRS, PATTERNS) if arm.pairs else ((), ())
        settings = {
            **recipe,
            "train": tuple(places.data / file for file in (*GOLD, *pairs)),
            "patterns": tuple(places.data / file for file in patterns),
            "shares": shares if arm.pairs else shares[: len(GOLD)],
            "dev": places.data / NQ_DEV,
            "refuse": tuple(_tests(places.data)),
            "index": places.index,
            "encoder": places.encoder,
            "out": self.places.arm(ARMS[name].like or name) / "train",
            "teacher": places.teacher if name == "taught" else None,
            "device": places.device,
        }
        try:
            return ReaderConfig(**{**settings, **dict(arm.changed)})
        except TypeError as error:
            raise BadInput(f"--sizes: a setting of the recipe is of another kind than it should be: {error}") from error

    def train(self, name: str) -> Path:
        """Train and export an arm, unless that was done; the reader's directory."""
        config, name = self.config(name), ARMS[name].like or name
        self.sharing(config)
        notify = partial(self.notify, name)
        model = finished(config, partial(span_reader.main, progress=self.progress, notify=notify), common.notify)
        out, weights = self.places.arm(name) / "reader", artefacts.checksum(model / "model.safetensors")[:16]
        if not out.is_dir() or artefacts.peek(out).parents["weights"] != weights:
            export(model, out, share=self.places.share if config.freeze_embeddings else None)
        calibration = replace(UNCALIBRATED, prior=self.sizes.retrieval_counts)
        if Calibration.load(out) != calibration:
            install(calibration, out)
        calibration.save(model)
        return out

    def notify(self, name: str, line: str) -> None:
        """Say how far an arm is."""
        common.notify(f"{name}: {line}")

    def sharing(self, config: ReaderConfig) -> None:
        """Have arms that ask the same questions find what was mined for the first of them."""
        shared = self.places.work / ("mined" if config.patterns else "mined-gold")
        shared.mkdir(parents=True, exist_ok=True)
        config.out.mkdir(parents=True, exist_ok=True)
        if not (config.out / "mined").exists():
            (config.out / "mined").symlink_to(shared.resolve())

    @property
    def tests(self) -> list[TestSet]:
        """What every arm is asked."""
        places = self.places
        found = [TestSet(each.key, each, places.asked, gold=each.key == SQUAD.key) for each in SUITES]
        squad = next(each for each in SUITES if each.key == SQUAD.key)
        return [*found, *([TestSet(OPEN, squad, places.paragraphs)] if places.paragraphs else [])]

    def em(self, name: str) -> dict[str, Any]:
        """What an arm answers in each test set."""
        folder, settings = self.places.arm(name), self.settings(name)
        return common.suites_of(self.tests, folder, settings, name, partial(self.scored, name))

    def scored(self, name: str, test: TestSet) -> dict[str, Any]:
        """A test set, as ``python -m eval.SUITE`` scores it."""
        reader = self.train(name)
        if name == "float32":
            reader = self.config(name).out / "model"
        how: dict[str, Any] = {"gold": True} if test.gold else {"k": PASSAGES}
        figures = common.scored(
            test.suite,
            test.index,
            self.places.arm(name) / f"{test.key}.report",
            data=self.places.data,
            corpus=test.index.name,
            depth=DEPTH,
            limit=self.sizes.limit,
            reader=reader,
            **how,
        ).figures
        kept = ("em", "f1", "answer_recall", "coverage_bound")
        return {"questions": figures["about"]["questions"], **{key: figures[key] for key in kept}}

    def settings(self, name: str) -> list[Any]:
        """All that the figures of an arm depend on; files and indexes by what is in them."""
        asked = {
            "tests": [artefacts.checksum(file) for file in _tests(self.places.data)],
            "indexes": [artefacts.peek(each.index).fingerprint for each in self.tests],
            "share": self.places.share and artefacts.peek(self.places.share).fingerprint,
            "limit": self.sizes.limit,
            "k": PASSAGES,
            "retrieval_counts": self.sizes.retrieval_counts,
            "float32": name == "float32",
        }
        return [asked, *common.plain([self.config(name)], self.places.work)]

    def row(self, name: str) -> dict[str, Any]:
        """The figures of an arm, and what its training took."""
        found = self.em(name)
        config = self.config(name)
        best = [row for row in read_rows(config.out) if "best_step" in row]
        return {
            "arm": name,
            "title": ARMS[name].title,
            "trained_s": round(common.seconds(config.out)),
            "best_step": best[-1]["best_step"] if best else None,
            "em": found,
        }


def _tests(data: Path) -> list[Path]:
    """The files of the test questions."""
    return [data / each.key / each.splits[each.default_split].file for each in SUITES]


def check(places: Places, arms: Sequence[str]) -> None:
    """Raise BadInput now for what would else be found out after hours."""
    files = (*(places.data / file for file in (*GOLD, *PAIRS, *PATTERNS, NQ_DEV)), *_tests(places.data))
    if missing := [str(file.relative_to(places.data)) for file in files if not file.is_file()]:
        raise BadInput(f"{places.data} lacks {', '.join(missing)}")
    if not (places.encoder / "tokenizer.json").is_file():
        raise BadInput(f"{places.encoder} is no encoder: give the folder of torch weights with a tokenizer.json")
    if "taught" in arms and places.teacher is None:
        raise BadInput("--arms taught: --teacher is needed, the directory of a larger reader")


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parse.add_argument
    add("--work", type=Path, required=True)
    add("--encoder", type=Path, required=True, help="torch weights that all arms begin from")
    add("--index", type=Path, required=True, help="what training passages are found in")
    add("--asked", type=Path, help="index that the test questions are asked over; default: --index")
    add("--paragraphs", type=Path, help="index of SQuAD's paragraphs (eval.bench.squad_index): a row more")
    add("--data", type=Path, required=True, help="folder of nq, webq, trivia, curatedtrec and squad")
    add("--teacher", type=Path, help="directory of a larger reader, for the arm taught")
    add("--share", type=Path, help="export of the encoder, whose word embeddings the readers share")
    add("--arms", nargs="+", default=[name for name in ARMS if name != "taught"], choices=list(ARMS))
    add("--sizes", type=Path, help="JSON object with fields of eval.bench.reader.Sizes")
    add("--smoke", action="store_true", help="a few steps of everything")
    add("--device", default="cpu")
    add("--out", type=Path)
    args = parse.parse_args(arguments)
    with one_line():
        go(args)


def go(args: argparse.Namespace) -> None:
    """Train and ask the arms, and write what is wanted."""
    check_options(args)
    sizes, arms = common.sizes_of(Sizes(), SMOKE, args), [name for name in ARMS if name in args.arms]
    places = Places(
        work=args.work,
        encoder=args.encoder,
        index=args.index,
        asked=args.asked or args.index,
        data=args.data,
        paragraphs=args.paragraphs,
        teacher=args.teacher,
        share=args.share,
        device=args.device,
    )
    check(places, arms)
    bench = Bench(places, sizes, Bars())
    for name in arms:
        bench.config(name)  # what cannot be meant is said before anything is trained
    rows = [bench.row(name) for name in arms]
    for row in rows:
        row["less full"] = {each.key: common.less_full(places.arm, row["arm"], each.key) for each in bench.tests}
    if args.out:
        asked = "SQuAD dev-a beside its gold paragraphs; NQ, WebQuestions, CuratedTREC test-a over the corpus"
        asked += f"; {OPEN}: SQuAD dev-a over {args.paragraphs.name}" if args.paragraphs else ""
        record(args.out, {"sizes": asdict(sizes), "rows": rows}, corpus=places.asked.name, questions=asked)


if __name__ == "__main__":
    main()
