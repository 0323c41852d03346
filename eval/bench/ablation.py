"""REALM's ablation on real text: what each of its parts is worth, beside ORQA, DPR, BM25 and MiniLM.

    python -m eval.ablation_corpus --data DIR --out CORPUS
    python -m eval.bench.ablation --work DIR --encoder DIR --corpus CORPUS --data DIR \\
        --out docs/measurements/ablation.json --plot docs/ablation.png
    python -m eval.ablation_table docs/measurements/ablation.json

Two stages: ``recall`` of every arm's retriever on questions of NQ dev, before any question was seen (but for those
whose row says otherwise), then ``em`` after fine-tuning on NQ test-a and SQuAD dev-a, both by the harness of
``ragqa eval``. Figures of an arm are kept in its folder as soon as they are there. The same command goes on after
whatever ended it; the warm start is made once and shared. Settings of every stage are options: ``--sizes FILE.json``
with fields of ``eval.ablation_sizes.Sizes``.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from eval import ablation
from eval.ablation import ARMS, USUAL, Places
from eval.ablation_corpus import REPORT
from eval.ablation_questions import HELD_OUT, check_apart, unlike
from eval.ablation_sizes import SMOKE, Sizes
from eval.bench import arms as common
from eval.bench.record import record
from eval.chance import Chance
from eval.command import one_line
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Suite
from index.build import BuildConfig, build
from index.embed import EmbedConfig, embed
from index.reuse import carry
from pipelines.common import assemble
from pipelines.common.plot import plot
from pipelines.common.stages import finished
from pipelines.dpr import train as dpr
from pipelines.orqa import fine_tune, inverse_cloze
from pipelines.realm import pretrain, reader_warmup
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.evaluation import evaluate
from ragqa.models.dual_encoder import DualEncoder
from ragqa.pipeline import Pipeline
from ragqa.progress import Bars, Progress
from ragqa.questions import read_questions
from ragqa.retrieval.base import PassageRetriever
from ragqa.runtime.encoder import DEFAULT
from ragqa.training.log import read_rows

STAGES = ("recall", "em")
SUITES: tuple[Suite, ...] = (NQ, SQUAD)
DEPTH = 20
"""Hits that are scored for answers."""
_TOGETHER = 32
"""Questions that are asked at a time where nothing is timed."""


@dataclass(frozen=True)
class Bench:
    """What the arms are trained and measured with."""

    places: Places
    sizes: Sizes
    corpus: str
    """What it is called."""
    progress: Progress

    def notify(self, line: str) -> None:
        """Say how far it is."""
        common.notify(line)

    def stages(self, name: str) -> list[Any]:
        """The settings of all that is trained before an arm is asked, in order."""
        arm = ARMS[name]
        if arm.learns == "nothing":
            return []
        warm = ablation.cloze(self.places, self.sizes, arm)
        if arm.learns == "dpr":
            start = warm.out / "model" if arm.after_cloze else self.places.arm(name) / "start"
            own = ablation.supervised(self.places, self.sizes, name, start)
            return [warm, own] if arm.after_cloze else [own]
        if arm.learns == "cloze":
            return [warm]
        reading = ablation.reading(self.places, self.sizes)
        return [warm, reading, ablation.pretraining(self.places, self.sizes, name)]

    def retriever(self, name: str) -> Path | None:
        """The dual encoder of an arm, trained unless that was done; None where nothing is."""
        made = None
        for config in self.stages(name):
            main: Callable[..., Path]
            if isinstance(config, inverse_cloze.WarmStartConfig):
                main = partial(inverse_cloze.main, progress=self.progress)
            elif isinstance(config, reader_warmup.WarmReaderConfig):
                main = partial(reader_warmup.main, progress=self.progress)
            elif isinstance(config, dpr.DprConfig):
                assert config.retriever is not None
                self.blank(config.retriever)
                main = partial(dpr.main, progress=self.progress, notify=self.named(name))
            else:
                main = partial(pretrain.main, progress=self.progress, notify=self.named(name))
            made = finished(config, main, self.notify)
        return made

    def blank(self, start: Path) -> None:
        """Towers for DPR to begin from, with the small inner products that ``DprConfig`` knows nothing of."""
        if start.exists():
            return
        torch.manual_seed(self.sizes.seed)
        width = self.sizes.width
        towers = DualEncoder.from_encoder(
            self.places.encoder, width=width, pooling="mean", shared=True, gain=width**-0.25
        )
        aside = start.with_name(f".{start.name}.writing")
        towers.save(aside)
        aside.rename(start)

    def named(self, name: str) -> Callable[[str], None]:
        """``notify`` for an arm."""
        return lambda line: self.notify(f"{name}: {line}")

    def recall(self, name: str) -> dict[str, Any]:
        """Answer recall of an arm's retriever on the questions of NQ dev, and how it was trained."""
        retriever, out = self.retriever(name), self.places.arm(name)
        every = read_questions(self.places.questions("recall"))
        asked = list(islice(unlike(every, read_questions(self.places.questions("train"))), self.sizes.recall))
        report = evaluate(
            self.searched(name, retriever),
            asked,
            out=out / "recall.report",
            name="NQ dev, drawn at random, none like a training question",
            split="dev",
            corpus=self.corpus,
            depth=DEPTH,
            batch=_TOGETHER,
            read=False,
            progress=self.progress,
        )
        alarms = [row["alarm"] for config in self.stages(name) for row in read_rows(config.out) if "alarm" in row]
        return {
            "recall": report.figures["answer_recall"],
            "ceiling": report.figures["coverage_bound"],
            "questions": len(asked),
            "trained_s": {config.out.name: round(seconds(config)) for config in self.stages(name)},
            "alarms": len(alarms),
        }

    def searched(self, name: str, retriever: Path | None) -> Pipeline:
        """The passages, embedded and indexed by an arm's retriever, or BM25, or chance."""
        if name in ("bm25", "random"):
            by_terms = Pipeline.load(self.places.index, retriever="bm25")
            store = PassageStore.open(self.places.index / "passages")
            chance = Pipeline(PassageRetriever(Chance(store, self.sizes.seed), store), by_terms.reader)
            return by_terms if name == "bm25" else chance
        out, encoder = self.places.arm(name), str(retriever or DEFAULT)
        gpus = retriever is not None and self.places.device.startswith("cuda")
        made = EmbedConfig(corpus=self.places.index, out=out / "vectors", encoder=encoder, workers=0, gpus=gpus)
        embed(made, progress=self.progress)
        index = out / "index"
        build(BuildConfig(corpus=self.places.index, vectors=made.out, out=index, kind="flat"), progress=self.progress)
        return Pipeline.load(index, retriever="dense", encoder=encoder)

    def em(self, name: str) -> dict[str, Any]:
        """Exact match of an arm on the test questions, once it is fine-tuned."""
        retriever = self.retriever(name)
        assert retriever is not None
        reading = ablation.reading(self.places, self.sizes)
        finished(reading, partial(reader_warmup.main, progress=self.progress), self.notify)
        tune = ablation.tuning(self.places, self.sizes, name, retriever)
        if (made := self.places.arm(name) / "vectors").is_dir():  # the passages were embedded for their recall
            tune.out.mkdir(parents=True, exist_ok=True)
            carry(made, retriever, tune.out / "vectors")
        finished(tune, partial(fine_tune.main, progress=self.progress, notify=self.named(name)), self.notify)
        system = assemble.after(tune, self.places.arm(name) / "system")
        pipeline = finished(system, partial(assemble.main, progress=self.progress), self.notify)
        scored = {suite.key: self.scored(suite, pipeline, self.places.arm(name)) for suite in SUITES}
        return {"em": scored, "tuned_s": round(seconds(tune))}

    def scored(self, suite: Suite, pipeline: Path, out: Path) -> dict[str, Any]:
        """A test set, as ``python -m eval.SUITE`` scores it."""
        figures = common.scored(
            suite,
            pipeline,
            out / f"{suite.key}.report",
            data=self.places.data,
            corpus=self.corpus,
            depth=DEPTH,
            limit=self.sizes.limit,
        ).figures
        kept = ("em", "f1", "answer_recall", "coverage_bound")
        return {"questions": figures["about"]["questions"], **{key: figures[key] for key in kept}}

    def kept(self, name: str, stage: str) -> dict[str, Any]:
        """The figures of a stage of an arm: measured now, unless they are there and of the same settings."""
        measure = partial(self.recall if stage == "recall" else self.em, name)
        file = self.places.arm(name) / f"{stage}.json"
        return common.kept(file, self.settings(name, stage), measure, f"{name}: {stage}", self.notify)

    def settings(self, name: str, stage: str) -> list[Any]:
        """All that the figures of a stage depend on."""
        configs = self.stages(name)
        asked: Any = self.sizes.recall
        if stage == "em":
            last = configs[-1].out / "model"
            reading = ablation.reading(self.places, self.sizes)
            more = [] if reading in configs else [reading]
            configs = [*configs, *more, ablation.tuning(self.places, self.sizes, name, last)]
            asked = self.sizes.limit
        return [self.corpus, asked, *common.plain(configs, self.places.work)]


def seconds(config: Any) -> float:
    """Of the steps of a run, evaluations and indexes aside; of DPR those of its round."""
    return common.seconds(config.out / "round-1" if isinstance(config, dpr.DprConfig) else config.out)


def rows(bench: Bench, arms: Sequence[str], stages: Sequence[str]) -> list[dict[str, Any]]:
    """The table: all recall first, then all answers, the small arms first."""
    found: dict[str, dict[str, Any]]
    found = {name: {"arm": name, "title": ARMS[name].title, "note": ARMS[name].note} for name in arms}
    for stage in STAGES:
        for name in arms if stage in stages else ():
            if stage == "recall" or ARMS[name].answers:
                figures = bench.kept(name, stage)
                found[name].update({key: value for key, value in figures.items() if key != "settings"})
    for name, row in found.items():
        reports = ("recall", *(suite.key for suite in SUITES))
        row["less full"] = {each: common.less_full(bench.places.arm, name, each) for each in reports}
    return list(found.values())


def check(places: Places, arms: Sequence[str], sizes: Sizes) -> dict[str, Any]:
    """What is known of the corpus; raises BadInput now for what would else be found out after hours."""
    if not (places.corpus / REPORT).is_file():
        raise BadInput(f"{places.corpus} is no corpus of the ablation: make one with python -m eval.ablation_corpus")
    if not (places.encoder / "config.json").is_file():
        raise BadInput(f"{places.encoder} is no encoder: give the folder of a masked language model as --encoder")
    held_out = [*(places.data / file for file in HELD_OUT), places.questions("recall"), places.questions("dev")]
    check_apart(places.questions("train"), held_out)
    bench = Bench(places, sizes, "", Bars())
    for name in arms:
        if bench.stages(name):
            check_tokenizers(places, places.begins_from(ARMS[name]))
    report: dict[str, Any] = json.loads((places.corpus / REPORT).read_text())
    return report


def check_tokenizers(places: Places, encoder: Path) -> None:
    """Raise BadInput where towers would be given another encoder's wordpieces."""
    one, other = (json.loads((path / "tokenizer.json").read_text())["model"] for path in (encoder, places.encoder))
    if one != other:
        raise BadInput(f"{encoder} has another tokenizer than {places.encoder}: a text must be the same to both")


def main(arguments: Sequence[str] | None = None) -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parse.add_argument
    add("--work", type=Path, required=True)
    add("--encoder", type=Path, required=True, help="pretrained by pipelines.masked_lm")
    add("--corpus", type=Path, required=True, help="made by eval.ablation_corpus")
    add("--data", type=Path, required=True, help="folder of nq and squad")
    add("--minilm", type=Path, help="torch weights of all-MiniLM-L6-v2, for the arm from-minilm")
    add("--arms", nargs="+", default=USUAL, choices=list(ARMS))
    add("--stages", default=",".join(STAGES), help="recall, em, or both with a comma between")
    add("--sizes", type=Path, help="JSON object with fields of eval.ablation_sizes.Sizes")
    add("--smoke", action="store_true", help="a few steps of everything")
    add("--device", default="cpu")
    add("--out", type=Path)
    add("--plot", type=Path, help="picture of the pretraining of the arms")
    args = parse.parse_args(arguments)
    with one_line():
        go(args)


def go(args: argparse.Namespace) -> None:
    """Train and measure the arms, and write what is wanted."""
    stages = common.stages_of(args, STAGES)
    arms, sizes = [name for name in ARMS if name in args.arms], common.sizes_of(Sizes(), SMOKE, args)
    places = Places(
        work=args.work,
        corpus=args.corpus,
        encoder=args.encoder,
        data=args.data,
        minilm=args.minilm,
        device=args.device,
    )
    corpus = check(places, arms, sizes)
    name = f"{corpus['blocks']:,} blocks of 100 words that hold the gold passages that are known (eval.ablation_corpus)"
    found = rows(Bench(places, sizes, name, Bars()), arms, stages)
    if args.out:
        figures = {"sizes": asdict(sizes), "corpus made of": corpus, "rows": found}
        asked = "NQ dev, those that no training question is like, and the suites': see the rows"
        record(args.out, figures, corpus=name, questions=asked)
    if args.plot:
        runs = {each: places.arm(each) / "pretrain" for each in arms if ARMS[each].learns == "realm"}
        if runs:
            plot(list(runs.values()), args.plot, names=list(runs))


if __name__ == "__main__":
    main()
