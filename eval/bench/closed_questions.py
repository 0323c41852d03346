"""Questions in a closed world: what teaches a retriever, and how many questions that takes.

    python -m eval.bench.closed_questions --work DIR --seeds 0 1 2 --out docs/measurements/closed_questions.json \\
        --plot docs/closed_questions.png

Answers are of two tokens, the facts that are asked stand in passages only. With all questions, 32 a step: RAG-Token,
RAG-Sequence, and the closed book, which sees as many; joint training by its default schedule, 16 a step in half of
twice as many steps. Then, with 50, 200, 1,000 and all of them, 16 a step and at equal steps: RAG alone, joint from the
first step, REALM and then RAG, REALM and then joint (the stage of REALM is run once a seed, with 32 statements a step,
where joint training has 16 beside 16 questions), and joint by default. In every run the retriever waits until what
reads has learned to. A run goes on where one before it ended. A row says how many questions had been ``seen`` at each
evaluation of ``dev``.

Seeds are independent: two processes, one on each of two cores and with one ``--out``, take half of the time. A row
stands there as soon as it is made. Rows that do are not made again where their settings are the same, and stay where
they are not asked for, so that a machine can go on where another ended.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from eval import closed_answers, closed_world
from eval.bench.arms import digest, kept, plain
from eval.bench.closed_world import seconds
from eval.bench.record import note
from eval.command import one_line
from pipelines import closed_book
from pipelines.closed_book import ClosedBookConfig
from pipelines.common.questions import answerable
from pipelines.joint import __main__ as joint
from pipelines.joint.__main__ import JointConfig
from pipelines.orqa import inverse_cloze
from pipelines.orqa.inverse_cloze import WarmStartConfig
from pipelines.rag import train as rag
from pipelines.rag.train import RagConfig
from pipelines.realm import pretrain
from pipelines.realm.pretrain import PretrainConfig
from ragqa.artefacts.lock import locked
from ragqa.progress import Bars
from ragqa.training.log import read_rows

ENTITIES, ASKED, DEV = 2000, 450, 100
CLOZE, REALM, STEPS = 1000, 1750, 1750
BATCH = 16
"""Questions a step where orders of training are compared, as many as joint training has."""
FEW = (50, 200, 1000, 0)
"""Numbers of training questions; 0 for all."""
LEARNS = ("RAG-Token", "RAG-Sequence", "joint", "closed book")
ORDERS = ("RAG alone", "joint from the first step", "REALM, then RAG", "REALM, then joint")
DRAWN = (*ORDERS, "joint")
"""Arms of the picture."""
LABELS = {"joint": "joint by default: masked words first"}


@dataclass(frozen=True)
class Begun:
    """What all runs of a seed begin from."""

    world: closed_world.World
    folders: closed_world.Folders
    root: Path
    start: Path
    cloze: WarmStartConfig
    """The retriever's warm start."""
    stage: PretrainConfig
    """The stage of REALM, run once."""
    dev: Path
    """Questions that choose the weights."""
    test: Path
    """Those that are scored."""

    @property
    def retriever(self) -> Path:
        """The one that is warm-started."""
        return self.cloze.out / "model"

    @property
    def generator(self) -> Path:
        """The one that begins from nothing."""
        return self.root / "generator"


Config = RagConfig | JointConfig | ClosedBookConfig


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--work", type=Path, required=True)
    add("--seeds", type=int, nargs="+", default=[0])
    add("--arms", nargs="+", default=[*LEARNS, *ORDERS], choices=(*LEARNS, *ORDERS))
    add("--few", type=int, nargs="+", default=list(FEW), help=f"training questions of {', '.join(DRAWN)}; 0: all")
    add("--entities", type=int, default=ENTITIES)
    add("--asked", type=int, default=ASKED)
    add("--dev", type=int, default=DEV, help="of the facts asked, those that choose the weights")
    add("--cloze", type=int, default=CLOZE)
    add("--realm", type=int, default=REALM, help="steps of the stage of masked words")
    add("--steps", type=int, default=STEPS, help="steps of questions after it")
    add("--out", type=Path)
    add("--plot", type=Path)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # of tensors this small a second thread makes a step slower
    made = [
        written(args, trained(args, seed, arm, few))
        for seed in args.seeds
        for arm in args.arms
        for few in (args.few if arm in DRAWN else [0])
    ]
    if args.plot:
        rows = recorded(args.out) or made
        picture([row for row in rows if row["arm"] in DRAWN], args.plot)


def written(args: argparse.Namespace, row: dict[str, Any]) -> dict[str, Any]:
    """The row, which now stands in ``--out`` among those that other processes write there."""
    if args.out:
        args.work.mkdir(parents=True, exist_ok=True)
        with locked(args.work / ".out.lock", wait=True):
            rows = {place(each): each for each in [*recorded(args.out), row]}
            note(
                args.out,
                {"rows": [rows[each] for each in sorted(rows)]},
                corpus=f"a closed world of {3 * args.entities} passages, eval/closed_world.py",
                questions=f"{args.asked - args.dev} facts that were never trained on, answers of two tokens",
            )
    return row


def recorded(out: Path | None) -> list[dict[str, Any]]:
    """Rows that stand in ``out``."""
    return json.loads(out.read_text())["rows"] if out and out.is_file() else []


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    """Where a row stands: by seed, by arm, by number of questions."""
    return row["seed"], [*ARMS].index(row["arm"]), row["questions"]


def trained(args: argparse.Namespace, seed: int, arm: str, few: int) -> dict[str, Any]:
    """What became of an arm; trained unless an earlier run of the same settings has, here or by ``--out``."""
    out: Path = args.work / f"seed-{seed}" / arm.replace(" ", "-").replace(",", "") / str(few or "all")
    begun = begin(args, seed)
    config = ARMS[arm](args, begun, some(begun, few), out)
    stages = [begun.cloze, *([begun.stage] if arm.startswith("REALM") else []), config]
    given = [arm, few, args.entities, args.asked, args.dev, *plain(stages, args.work)]
    told = f"{arm}, {few or 'all'} questions, seed {seed}"
    known = digest(given)
    for row in recorded(args.out):
        if row["settings"] == known:
            return row
    row = kept(out / "figures.json", given, lambda: measured(begun, arm, config, told), told)
    return {**row, "settings": known}


def measured(begun: Begun, arm: str, config: Config, told: str) -> dict[str, Any]:
    """The figures of an arm, trained, or gone on with."""

    def notify(line: str) -> None:
        print(f"{told}: {line}", flush=True)

    tagger = closed_world.ObjectTagger(begun.world.objects)
    inverse_cloze.main(begun.cloze, progress=Bars())
    closed_answers.begin_generator(begun.start, begun.generator, config.seed)
    if arm.startswith("REALM"):
        pretrain.main(begun.stage, finds=tagger, progress=Bars(), notify=notify)
        closed_answers.begin_generator(begun.stage.out / "reader", begun.root / "generator-realm", config.seed)
    first, batch = 0, config.rag.batch if isinstance(config, JointConfig) else config.batch
    if isinstance(config, ClosedBookConfig):
        closed_book.main(config, progress=Bars(), notify=notify)
        scores = closed_answers.remembered(config.out, begun.test)
    else:
        if isinstance(config, JointConfig):
            joint.main(config, finds=tagger, progress=Bars(), notify=notify)
            first = config.asked_from
        else:
            rag.main(config, progress=Bars(), notify=notify)
        scores = closed_answers.answered(begun.folders, config.out, begun.test)
    rows = read_rows(config.out)
    dev = {row["step"]: row["em"] for row in rows if "em" in row}
    return {
        "arm": arm,
        "seed": config.seed,
        "questions": len(answerable(config.questions)),
        "seconds": seconds(config.out),
        "seconds_masked": seconds(begun.stage.out) if arm.startswith("REALM") else 0.0,
        **scores,
        "dev": {str(step): em for step, em in dev.items()},
        "seen": {str(step): batch * max(0, step - first) for step in dev},
        "alarms": [f"step {row['step']}: {row['alarm']}" for row in rows if "alarm" in row],
    }


def begin(args: argparse.Namespace, seed: int) -> Begun:
    """World, encoder and questions of a seed, made unless they are there."""
    root: Path = args.work / f"seed-{seed}"
    world = closed_world.make(args.entities, args.asked, seed, words=2)
    folders = closed_world.write(world, root / "world", seed=seed)
    start = closed_world.begin(folders, root / "start", seed)
    cloze = closed_world.warm_up(folders, start, root / "cloze", seed=seed, steps=args.cloze)
    dev = closed_world.write_questions(world.asked[: args.dev], root / "dev.jsonl")
    test = closed_world.write_questions(world.asked[args.dev :], root / "test.jsonl")
    stage = closed_world.pretraining(folders, start, cloze.out / "model", root / "realm", seed=seed, steps=args.realm)
    stage = replace(stage, questions=dev, sample=100, frozen=min(closed_answers.FROZEN, args.realm // 2))
    return Begun(world, folders, root, start, cloze, stage, dev, test)


def some(begun: Begun, few: int) -> Path:
    """A file of so many training questions."""
    if not few:
        return begun.folders.taught
    file = begun.root / f"taught-{few}.jsonl"
    file.write_text("".join(begun.folders.taught.read_text().splitlines(keepends=True)[:few]))
    return file


def alone(begun: Begun, questions: Path, out: Path, *, steps: int, **changes: Any) -> RagConfig:
    """RAG from the warm start, or with ``changes``."""
    config = closed_answers.answering(
        begun.folders, questions, begun.retriever, begun.generator, out, seed=begun.cloze.seed, steps=steps
    )
    return replace(config, dev=begun.dev, **changes)


def both(begun: Begun, questions: Path, out: Path, *, steps: int, **changes: Any) -> JointConfig:
    """Masked statements and questions, as many of each; the generator is made of the masked language model."""
    config = closed_answers.together(
        begun.folders, begun.start, begun.retriever, None, questions, out, seed=begun.cloze.seed, steps=steps
    )
    return replace(config, dev=begun.dev, **changes)


def book(args: argparse.Namespace, begun: Begun, questions: Path, out: Path) -> ClosedBookConfig:
    """The closed book."""
    config = closed_answers.remembering(
        begun.folders, questions, begun.generator, out, seed=begun.cloze.seed, steps=args.steps
    )
    return replace(config, dev=begun.dev)


def then_rag(args: argparse.Namespace, begun: Begun, questions: Path, out: Path) -> RagConfig:
    """REALM, then RAG with a generator made of REALM's reader."""
    parts = {"retriever": begun.stage.out / "model", "generator": begun.root / "generator-realm"}
    return alone(begun, questions, out, steps=args.steps, batch=BATCH, **parts)


def then_joint(args: argparse.Namespace, begun: Begun, questions: Path, out: Path) -> JointConfig:
    """REALM, then joint: both losses from the first step of the second stage."""
    parts = {"retriever": begun.stage.out / "model", "encoder": begun.stage.out / "reader"}
    return both(begun, questions, out, steps=args.steps, gen_from=0.0, **parts)


def by_default(args: argparse.Namespace, begun: Begun, questions: Path, out: Path) -> JointConfig:
    """Joint training in one run: questions wait for half of the steps."""
    steps = args.realm + args.steps
    return both(begun, questions, out, steps=steps, gen_from=args.realm / steps, frozen=None)


def at_once(args: argparse.Namespace, begun: Begun, questions: Path, out: Path) -> JointConfig:
    """Joint from the first step."""
    return both(begun, questions, out, steps=args.realm + args.steps, gen_from=0.0)


ARMS: dict[str, Callable[[argparse.Namespace, Begun, Path, Path], Config]] = {
    "RAG-Token": lambda args, *others: alone(*others, steps=args.steps),
    "RAG-Sequence": lambda args, *others: alone(*others, steps=args.steps, marginal="sequence"),
    "joint": by_default,
    "closed book": book,
    "RAG alone": lambda args, *others: alone(*others, steps=args.realm + args.steps, batch=BATCH),
    "joint from the first step": at_once,
    "REALM, then RAG": then_rag,
    "REALM, then joint": then_joint,
}


def picture(rows: list[dict[str, Any]], out: Path) -> None:
    """Exact match against the number of training questions: a line through the means of the seeds, a point each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4))
    for colour, arm in enumerate(dict.fromkeys(row["arm"] for row in rows)):
        own = [row for row in rows if row["arm"] == arm]
        counts = sorted({row["questions"] for row in own})
        found = [[100 * row["em"] for row in own if row["questions"] == count] for count in counts]
        axis.plot(counts, [sum(each) / len(each) for each in found], f"C{colour}-", label=LABELS.get(arm, arm))
        for count, each in zip(counts, found, strict=True):
            axis.plot([count] * len(each), each, f"C{colour}.", ms=4)
    axis.set_xscale("log")
    axis.set_xticks(ticks := sorted({row["questions"] for row in rows}), [f"{count:,}" for count in ticks], minor=False)
    axis.minorticks_off()
    axis.set_xlabel("training questions")
    axis.set_ylabel("exact match on facts never trained on, %")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    with one_line():
        main()
