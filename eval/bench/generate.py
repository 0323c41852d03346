"""Generators on real text: RAG-Token, RAG-Sequence, FiD and the span reader, beside the closed book.

    python -m eval.generate_corpus --data DIR --out CORPUS
    python -m eval.bench.generate --work DIR --encoder MINILM --corpus CORPUS --data DIR \\
        --out docs/measurements/generate
    python -m eval.table docs/measurements/generate/*_*.json

Three stages: ``start`` makes what arms share (the retriever, the vectors and the index of the passages, and the
generator, of ragqa's own span reader), ``train`` trains the arms and calibrates them, ``em`` asks them the four test
sets by the harness. Figures of an arm are kept in its
folder as soon as they are there, and the same command goes on after whatever ended it; once ``start`` is done, arms may
be trained beside each other. Settings of every stage are options: ``--sizes FILE.json`` with fields of
``eval.generate_sizes.Sizes``.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from eval import generate
from eval.ablation_corpus import QUESTIONS, REPORT
from eval.bench import arms as common
from eval.bench.record import record
from eval.command import one_line
from eval.curatedtrec import CURATEDTREC
from eval.generate import ARMS, Places
from eval.generate_questions import check as check_questions
from eval.generate_sizes import SMOKE, Sizes
from eval.nq import NQ
from eval.publish import publish
from eval.squad import SQUAD
from eval.suite import Suite
from eval.table import table
from eval.webq import WEBQ
from index.build import BuildConfig, build
from index.embed import EmbedConfig, embed
from index.reuse import carry
from pipelines import closed_book, fid
from pipelines.closed_book import ClosedBookConfig
from pipelines.common import assemble
from pipelines.common.stages import finished
from pipelines.fid import FidConfig
from pipelines.rag import train as rag
from pipelines.rag import warm_generator
from ragqa.artefacts import resume
from ragqa.errors import BadInput
from ragqa.models.readers import reader_kind
from ragqa.progress import Bars, Progress
from ragqa.runtime.export import export
from ragqa.training.log import read_rows

STAGES = ("start", "train", "em")
SUITES: tuple[Suite, ...] = (NQ, WEBQ, CURATEDTREC, SQUAD)
DEPTH = 20
"""Hits that are scored for answers."""


@dataclass(frozen=True)
class Bench:
    """What the arms are trained and measured with."""

    places: Places
    sizes: Sizes
    corpus: str
    """What it is called."""
    progress: Progress

    def start(self) -> None:
        """Make what all arms share, unless it is there."""
        places, retriever = self.places, generate.begin_retriever(self.places, self.sizes)
        asks = places.work / "asks"
        if not asks.is_dir():
            export(retriever, asks)
        gpus = places.device.startswith("cuda")
        made = EmbedConfig(corpus=places.passages, out=places.vectors, encoder=str(retriever), workers=0, gpus=gpus)
        embed(made, progress=self.progress)
        if not places.index.is_dir():
            index = BuildConfig(
                corpus=places.passages, vectors=places.vectors, out=places.index, kind="flat", encoder=str(asks)
            )
            build(index, progress=self.progress)
        generate.begin_reader(places)
        finished(generate.start(places, self.sizes), partial(warm_generator.main, **self.told("start")), common.notify)

    def settle(self) -> None:
        """See that what the work folder holds was made of what is given now; raises BadInput."""
        file, now = self.places.work / "made_of.json", generate.made_of(self.places)
        before = json.loads(file.read_text()) if file.is_file() else {}
        if changed := [name for name in now if before.get(name, now[name]) != now[name]]:
            raise BadInput(
                f"{self.places.work} was made of another {' and '.join(changed)}: choose another folder as --work"
            )
        self.places.work.mkdir(parents=True, exist_ok=True)
        resume.write_whole(file, json.dumps(now, indent=1) + "\n")

    def told(self, name: str) -> dict[str, Any]:
        """Where the training of an arm says how far it is."""
        return {"progress": self.progress, "notify": lambda line: common.notify(f"{name}: {line}")}

    def train(self, name: str) -> Path:
        """Train an arm, unless that was done; its pipeline."""
        config = generate.training(self.places, self.sizes, name)
        if config is None:
            return self.places.index
        told = self.told(name)
        if isinstance(config, FidConfig):
            return finished(config, partial(fid.whole, **told), common.notify)
        if isinstance(config, ClosedBookConfig):
            return finished(config, partial(closed_book.whole, **told), common.notify)
        config.out.mkdir(parents=True, exist_ok=True)
        carry(self.places.vectors, self.places.retriever, config.out / "vectors")
        finished(config, partial(rag.main, **told), common.notify)
        whole = assemble.after_writing(config, self.places.arm(name) / "system")
        whole = replace(whole, calibrate=self.sizes.calibrate)
        return finished(whole, partial(assemble.main, **told), common.notify)

    def em(self, name: str) -> dict[str, Any]:
        """What an arm says to the test sets; each is asked once."""
        return common.suites_of(SUITES, self.places.arm(name), self.settings(name), name, partial(self.scored, name))

    def scored(self, name: str, suite: Suite) -> dict[str, Any]:
        """A test set, as ``python -m eval.SUITE`` scores it; the record of it lies beside."""
        report = common.scored(
            suite,
            self.train(name),
            self.places.arm(name) / f"{suite.key}.report",
            data=self.places.data,
            corpus=self.corpus,
            depth=DEPTH,
            limit=self.sizes.limit,
            batch=self.sizes.asked,
            retriever="dense",
            k=self.sizes.read,
            trained=generate.words(self.sizes, name),
            device=self.places.device,
        )
        publish(report, self.record(name, suite))
        kept = ("em", "f1", "answer_recall", "coverage_bound")
        return {"questions": report.figures["about"]["questions"], **{key: report.figures[key] for key in kept}}

    def record(self, name: str, suite: Suite) -> Path:
        """Where the figures of an arm on a test set lie, as they can be committed."""
        return self.places.arm(name) / "records" / f"{suite.key}_{name}.json"

    def settings(self, name: str) -> list[Any]:
        """All that the figures of an arm depend on."""
        own = generate.training(self.places, self.sizes, name)
        stages = [generate.start(self.places, self.sizes), own] if own else []
        asked = [self.sizes.scale, self.sizes.limit, self.sizes.read, self.sizes.asked]
        made = generate.made_of(self.places)
        return [self.corpus, made, *asked, *common.plain(stages, self.places.work)]

    def start_seconds(self) -> int:
        """Of the steps that generators share."""
        return round(common.seconds(generate.start(self.places, self.sizes).out))

    def spent(self, name: str) -> dict[str, Any]:
        """Seconds of an arm's steps, and what was alarming about them."""
        config = generate.training(self.places, self.sizes, name)
        if config is None or not config.out.is_dir():
            return {}
        alarms = [row["alarm"] for row in read_rows(config.out) if "alarm" in row]
        return {"trained_s": round(common.seconds(config.out)), "alarms": alarms}


def check(places: Places) -> dict[str, Any]:
    """What is known of the corpus; raises BadInput now for what would else be found out after hours."""
    if not (places.corpus / REPORT).is_file():
        raise BadInput(f"{places.corpus} is no corpus of this bench: make one with python -m eval.generate_corpus")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (places.encoder / name).is_file():
            raise BadInput(
                f"{places.encoder} has no {name}: give the folder of all-MiniLM-L6-v2's torch weights as --encoder"
            )
    if places.begun and reader_kind(places.begun) is None:
        raise BadInput(f"{places.begun} holds no span reader: --reader is what pipelines.span_reader.train writes")
    if places.given and not places.given.is_dir():
        raise BadInput(f"{places.given} does not exist: --retriever must be the folder of a dual encoder")
    check_questions(places.corpus / QUESTIONS, places.data)
    report: dict[str, Any] = json.loads((places.corpus / REPORT).read_text())
    return report


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parse.add_argument
    add("--work", type=Path, required=True)
    add("--encoder", type=Path, required=True, help="torch weights of all-MiniLM-L6-v2")
    add("--corpus", type=Path, required=True, help="made by eval.generate_corpus")
    add("--data", type=Path, required=True, help="folder of nq, webq, curatedtrec and squad")
    add("--retriever", type=Path, help="a dual encoder for all arms; default: one made of --encoder")
    add("--reader", type=Path, help="a span reader that generators are made of; default: ragqa's own")
    add("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    add("--stages", default=",".join(STAGES), help=f"of {', '.join(STAGES)}, with commas between")
    add("--sizes", type=Path, help="JSON object with fields of eval.generate_sizes.Sizes")
    add("--smoke", action="store_true", help="a few steps of everything")
    add("--device", default="cpu")
    add("--out", type=Path, help="folder for the records, the table and what the runs took")
    args = parse.parse_args(arguments)
    with one_line():
        go(args)


def go(args: argparse.Namespace) -> None:
    """Train and ask the arms, and write what is wanted."""
    stages, sizes = common.stages_of(args, STAGES), common.sizes_of(Sizes(), SMOKE, args)
    arms = [name for name in ARMS if name in args.arms]
    places = Places(
        work=args.work,
        corpus=args.corpus,
        encoder=args.encoder,
        data=args.data,
        given=args.retriever,
        begun=args.reader,
        device=args.device,
    )
    corpus = check(places)
    name = f"{corpus['blocks']:,} blocks of 100 words for all four test sets (eval.generate_corpus)"
    bench = Bench(places, sizes, name, Bars())
    bench.settle()
    if "start" in stages:
        bench.start()
        bench.settle()
    for arm in arms if "train" in stages else ():
        bench.train(arm)
    if "em" not in stages:
        return
    rows = {arm: {"arm": arm, "title": ARMS[arm], **bench.spent(arm), "em": bench.em(arm)} for arm in arms}
    records = {(suite.key, arm): bench.record(arm, suite) for suite in SUITES for arm in arms}
    figures = {"sizes": asdict(sizes), "corpus made of": corpus, "start_s": bench.start_seconds()}
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for file in (each for record in records.values() for each in (record, record.with_suffix(".tsv"))):
            shutil.copyfile(file, args.out / file.name)
        rows = recorded(args.out / "generate.json", figures) | rows
        records = {(s.key, arm): args.out / f"{s.key}_{arm}.json" for s in SUITES for arm in rows}
    drawn = table([records[suite.key, arm] for suite in SUITES for arm in ARMS if arm in rows])
    drawn = f"{drawn}\n\n{generate.caption(corpus, places, sizes)}\n"
    if args.out:
        (args.out / "table.md").write_text(drawn)
        figures["rows"] = [rows[arm] for arm in ARMS if arm in rows]
        record(args.out / "generate.json", figures, corpus=name, questions="the suites': see the rows")
    print(drawn)


def recorded(file: Path, figures: dict[str, Any]) -> dict[str, Any]:
    """Rows of arms that stand there of earlier runs of the same ``figures``, which go for all."""
    before = json.loads(file.read_text()) if file.is_file() else {}
    same = all(before.get(name) == value for name, value in json.loads(json.dumps(figures)).items())
    return {row["arm"]: row for row in before.get("rows", ())} if same else {}


if __name__ == "__main__":
    main()
