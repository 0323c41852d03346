"""REALM in a closed world: does a retriever learn from masked words alone, and what if its index goes stale.

    python -m eval.bench.closed_world --work DIR --seeds 0 1 2 --out docs/measurements/closed_world.json \\
        --plot docs/closed_world.png

Arms: ``refreshed`` (every 50 steps), ``never refreshed``, and two that are known to collapse and must raise alarms:
``fast retriever`` (it learns at 1e-3 from the first step) and ``no warm start``. A run goes on where one before it
ended.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from eval import closed_world
from eval.bench.arms import kept, plain
from eval.bench.record import record
from eval.command import one_line
from index.refresh import opener
from pipelines.common.masked_text import masked_texts
from pipelines.common.plot import plot
from pipelines.common.tokenized_passages import Blocks
from pipelines.orqa import inverse_cloze
from pipelines.orqa.inverse_cloze import WarmStartConfig
from pipelines.realm import pretrain
from pipelines.realm.pretrain import PretrainConfig, Realm
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.progress import Bars
from ragqa.retrieval.vectors import mips
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.log import read_rows

ENTITIES, ASKED = 2000, 450
CLOZE, STEPS = 1000, 2000
COLLAPSED = 600
"""Steps that are enough to see retrieval collapse where there was no warm start."""
ARMS = ("refreshed", "never refreshed", "fast retriever", "no warm start")


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--work", type=Path, required=True)
    add("--seeds", type=int, nargs="+", default=[0])
    add("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    add("--entities", type=int, default=ENTITIES)
    add("--asked", type=int, default=ASKED)
    add("--cloze", type=int, default=CLOZE)
    add("--steps", type=int, default=STEPS)
    add("--out", type=Path)
    add("--plot", type=Path)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)  # of tensors this small a second thread makes a step slower
    rows = [trained(args, seed, arm) for seed in args.seeds for arm in args.arms]
    if args.out:
        facts = 3 * args.entities
        record(
            args.out,
            {"rows": rows},
            corpus=f"a closed world of {facts} passages, eval/closed_world.py",
            questions=f"{2 * args.asked} masked statements of facts that were never trained on",
        )
    if args.plot:
        runs = [folder(args, args.seeds[0], arm) for arm in args.arms]
        plot(runs, args.plot, names=args.arms)


def folder(args: argparse.Namespace, seed: int, arm: str) -> Path:
    """Directory of a run."""
    work: Path = args.work
    return work / f"seed-{seed}" / arm.replace(" ", "-")


def trained(args: argparse.Namespace, seed: int, arm: str) -> dict[str, Any]:
    """What became of an arm; trained unless an earlier run of the same settings has."""
    out = folder(args, seed, arm)
    world = closed_world.make(args.entities, args.asked, seed)
    folders = closed_world.write(world, out.parent / "world", seed=seed)
    start = closed_world.begin(folders, out.parent / "start", seed)
    cloze = closed_world.warm_up(folders, start, out.parent / "cloze", seed=seed, steps=args.cloze)
    retriever = out.parent / "cold" if arm == "no warm start" else cloze.out / "model"
    config = settings(closed_world.pretraining(folders, start, retriever, out, seed=seed, steps=args.steps), arm)
    given = [arm, args.entities, args.asked, *plain([cloze, config], args.work)]
    row = kept(out / "figures.json", given, lambda: measured(world, cloze, config, arm), f"{arm}, seed {seed}")
    return {name: value for name, value in row.items() if name != "settings"}


def measured(world: closed_world.World, cloze: WarmStartConfig, config: PretrainConfig, arm: str) -> dict[str, Any]:
    """The figures of an arm, trained, or gone on with."""
    out, seed = config.out, config.seed
    inverse_cloze.main(cloze, progress=Bars())
    if arm == "no warm start":
        torch.manual_seed(seed)
        DualEncoder.from_encoder(
            config.encoder, width=cloze.width, pooling=cloze.pooling, shared=cloze.shared, gain=cloze.gain
        ).save(config.retriever)
    tagger = closed_world.ObjectTagger(world.objects)
    pretrain.main(config, finds=tagger, progress=Bars(), notify=lambda line: print(f"{arm}, seed {seed}: {line}"))
    rows = read_rows(out)
    return {
        "arm": arm,
        "seed": seed,
        "cloze_s": seconds(cloze.out),
        "realm_s": seconds(out),
        **asked(world, config, tagger),
        "questions": {
            name: {str(row["step"]): row[name] for row in rows if name in row} for name in ("recall@1", "recall@5")
        },
        "alarms": [f"step {row['step']}: {row['alarm']}" for row in rows if "alarm" in row],
    }


def settings(config: PretrainConfig, arm: str) -> PretrainConfig:
    """Those of an arm."""
    if arm == "never refreshed":
        return replace(config, refresh_every=None)
    if arm == "refreshed":
        return config
    steps = config.steps if arm == "fast retriever" else min(COLLAPSED, config.steps)
    return replace(config, frozen=0, retriever_lr=config.lr, steps=steps)


def seconds(run: Path) -> float:
    """That its steps took, with the indexes that were made between them."""
    return round(sum(row.get("seconds", 0.0) + row.get("swap_stood", 0.0) for row in read_rows(run)), 1)


def asked(world: closed_world.World, config: PretrainConfig, tagger: closed_world.ObjectTagger) -> dict[str, Any]:
    """What the trained model makes of facts it has never seen.

    Over an index of its final weights, and, as ``own_index``, over the one that the run ended with.
    """
    blocks = Blocks.open(config.corpus, TextTokenizer(config.encoder), config.out / "blocks")
    model = Realm(DualEncoder.load(config.out / "model"), KnowledgeAugmentedEncoder.load(config.out / "reader"))
    texts = masked_texts(config, blocks, tagger, of=config.texts)
    fresh, own = (
        closed_world.ask(world, model, index, blocks, texts, config)
        for index in (fresh_index(config.out, blocks), own_index(config))
    )
    return {**fresh, "own_index": own}


def own_index(config: PretrainConfig) -> mips.Mips:
    """The last index of a run."""
    work = config.out / "index"
    last = max(int(path.name.partition("-")[2]) for path in work.glob("index-*"))
    return opener(config.corpus, work, kind=config.kind)(last)


def fresh_index(out: Path, blocks: Blocks) -> mips.Mips:
    """An exact index of the passages by the final weights."""
    encoder = load_encoder(out / "model")
    return mips.ExactIndex(encoder.encode([passage.titled for passage in blocks.store.read_rows(0, len(blocks))]))


if __name__ == "__main__":
    with one_line():
        main()
