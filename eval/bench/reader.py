"""What the parts of the reader's recipe are worth: each taken away in turn, then asked the test sets.

    python -m pipelines.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz --out gold.jsonl
    ragqa index wiki/ gold.jsonl --out reader.index
    python -m eval.bench.reader --work DIR --encoder MINILM --index reader.index --asked wiki.index --data DIR \\
        --out docs/measurements/reader.json

Every arm takes as many steps from one start by the same rates and is chosen by the same held-out questions; what is
exported to 8 bits then reads SQuAD dev-a's gold paragraphs, and the hits of NQ, WebQuestions and CuratedTREC test-a
over ``--asked``. The arm gold-only mines for itself; the others share what was mined. Figures of an arm are kept in its
folder as soon as they are there, and the same command goes on after whatever ended it. Settings are options:
``--sizes FILE.json`` with fields of ``Sizes``.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eval.ablation_sources import NQ_DEV, NQ_TRAIN, QED
from eval.bench import arms as common
from eval.bench.record import record
from eval.command import one_line
from eval.curatedtrec import CURATEDTREC
from eval.generate_questions import SQUAD_TRAIN
from eval.nq import NQ
from eval.squad import SQUAD
from eval.stage_sizes import StageSizes
from eval.suite import Suite
from eval.webq import WEBQ
from pipelines import span_reader
from pipelines.span_reader import ReaderConfig
from pipelines.stages import finished
from ragqa.errors import BadInput
from ragqa.progress import Bars, Progress
from ragqa.runtime.export import export
from ragqa.training.log import read_rows

SUITES: tuple[Suite, ...] = (SQUAD, NQ, WEBQ, CURATEDTREC)
"""SQuAD's questions are read beside their own paragraphs."""
DEPTH = 20
"""Hits that are scored for answers."""
GOLD, PAIRS, PATTERNS = (SQUAD_TRAIN, QED), (NQ_TRAIN, "webq/train.jsonl"), ("curatedtrec/train.jsonl",)
"""Training files of the data folder: with passages, without, and those whose answers are patterns."""


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
    "taught": Arm("taught by a larger reader (--teacher)"),
}


@dataclass(frozen=True, kw_only=True)
class Sizes(StageSizes):
    """How much each arm does; reckoned for a GPU or a long night, not tuned."""

    steps: int = 3000
    batch: int = 32
    accumulate: int = 1
    lr: float = 2e-4
    dropout: float = 0.1
    max_input: int = 384
    positives: int = 1
    negatives: float = 1.0
    depth: int = 50
    pool: int = 20
    shares: tuple[float, ...] = ()
    """Of the training files, in their order; those that an arm leaves out take theirs along."""
    sample: int = 500
    """Held-out questions of each kind that choose the weights."""
    evaluations: int = 6
    read: int = 10
    """Passages of a question."""


SMOKE = Sizes(steps=3, batch=2, max_input=64, depth=10, pool=3, sample=4, evaluations=1, read=2, limit=4)
"""A few steps of everything: does it run from end to end?"""


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
        places, sizes, arm = self.places, self.sizes, ARMS[ARMS[name].like or name]
        pairs, patterns = (PAIRS, PATTERNS) if arm.pairs else ((), ())
        shares = tuple(sizes.shares if arm.pairs else sizes.shares[: len(GOLD)])
        settings = {
            "train": tuple(places.data / file for file in (*GOLD, *pairs)),
            "patterns": tuple(places.data / file for file in patterns),
            "shares": shares,
            "dev": places.data / NQ_DEV,
            "index": places.index,
            "encoder": places.encoder,
            "out": self.places.arm(ARMS[name].like or name) / "train",
            "teacher": places.teacher if name == "taught" else None,
            "warmup": sizes.warm(sizes.steps),
            "eval_every": sizes.every(sizes.steps, sizes.evaluations),
            "save_every": sizes.every(sizes.steps, sizes.saves),
            "device": places.device,
        }
        own = ("steps", "batch", "accumulate", "lr", "dropout", "max_input", "positives", "negatives", "depth", "pool")
        settings |= {field: getattr(sizes, field) for field in (*own, "sample", "read", "seed")}
        return ReaderConfig(**{**settings, **dict(arm.changed)})

    def train(self, name: str) -> Path:
        """Train and export an arm, unless that was done; the reader's directory."""
        config, name = self.config(name), ARMS[name].like or name
        self.sharing(config)
        tell = partial(self.tell, name)
        model = finished(config, partial(span_reader.main, progress=self.progress, tell=tell), common.tell)
        out = self.places.arm(name) / "reader"
        if not out.is_dir():
            export(model, out, share=self.places.share)
        return out

    def tell(self, name: str, line: str) -> None:
        """Say how far an arm is."""
        common.tell(f"{name}: {line}")

    def sharing(self, config: ReaderConfig) -> None:
        """Have arms that ask the same questions find what was mined for the first of them."""
        shared = self.places.work / ("mined" if config.patterns else "mined-gold")
        shared.mkdir(parents=True, exist_ok=True)
        config.out.mkdir(parents=True, exist_ok=True)
        if not (config.out / "mined").exists():
            (config.out / "mined").symlink_to(shared.resolve())

    def em(self, name: str) -> dict[str, Any]:
        """What an arm answers in each test set."""
        return common.suites_of(SUITES, self.places.arm(name), self.settings(name), name, partial(self.scored, name))

    def scored(self, name: str, suite: Suite) -> dict[str, Any]:
        """A test set, as ``python -m eval.SUITE`` scores it."""
        reader = self.train(name)
        if name == "float32":
            reader = self.config(name).out / "model"
        how: dict[str, Any] = {"gold": True} if suite is SQUAD else {"k": self.sizes.read}
        figures = common.scored(
            suite,
            self.places.asked,
            self.places.arm(name) / f"{suite.key}.report",
            data=self.places.data,
            corpus=self.places.asked.name,
            depth=DEPTH,
            limit=self.sizes.limit,
            reader=reader,
            **how,
        ).figures
        kept = ("em", "f1", "answer_recall", "coverage_bound")
        return {"questions": figures["about"]["questions"], **{key: figures[key] for key in kept}}

    def settings(self, name: str) -> list[Any]:
        """All that the figures of an arm depend on."""
        asked = [self.places.asked.name, self.sizes.limit, self.sizes.read, name == "float32"]
        return [*asked, *common.plain([self.config(name)])]

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


def check(places: Places, arms: Sequence[str]) -> None:
    """Raise BadInput now for what would else be found out after hours."""
    files = (
        *GOLD,
        *PAIRS,
        *PATTERNS,
        NQ_DEV,
        *(f"{each.key}/{each.splits[each.default_split].file}" for each in SUITES),
    )
    if missing := [file for file in files if not (places.data / file).is_file()]:
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
    add("--data", type=Path, required=True, help="folder of nq, webq, curatedtrec and squad")
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
    sizes, arms = common.sizes_of(Sizes(), SMOKE, args), [name for name in ARMS if name in args.arms]
    places = Places(
        work=args.work,
        encoder=args.encoder,
        index=args.index,
        asked=args.asked or args.index,
        data=args.data,
        teacher=args.teacher,
        share=args.share,
        device=args.device,
    )
    check(places, arms)
    bench = Bench(places, sizes, Bars())
    rows = [bench.row(name) for name in arms]
    for row in rows:
        row["less full"] = {each.key: common.less_full(places.arm, row["arm"], each.key) for each in SUITES}
    if args.out:
        asked = "SQuAD dev-a beside its gold paragraphs; NQ, WebQuestions, CuratedTREC test-a over the corpus"
        record(args.out, {"sizes": asdict(sizes), "rows": rows}, corpus=places.asked.name, questions=asked)


if __name__ == "__main__":
    main()
