"""What retrieval costs in pretraining: a step of REALM beside a step of plain masked language modelling.

    python -m eval.bench.realm_step --corpus wiki.index --encoder runs/encoder/model --retriever runs/cloze/model \\
        --work DIR --out docs/measurements/realm_step.json

The same encoder, the same texts a step, one after the other in one run; then where the time of each goes. The passages
are embedded once, which a refresh would do again every so many steps.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval.bench.record import record
from pipelines import masked_lm
from pipelines.blocks import Blocks
from pipelines.candidates import NULL, propose, read, relevance
from pipelines.live_index import LiveIndex
from pipelines.masked_text import MaskedTexts, chooser, masked_texts
from pipelines.pretrain import PretrainConfig, Realm, rates
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.options import set_dropout
from ragqa.objectives import IGNORED, marginal_nll
from ragqa.progress import Bars
from ragqa.retrieval.mips import Mips
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.step import groups, optimise

LEFT_OUT = 3
"""Steps before the clock starts."""


class Clock:
    """Seconds of each part of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count what happens inside as ``part``."""
        began = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - began


def realm_step(
    clock: Clock,
    model: Realm,
    index: Mips,
    blocks: Blocks,
    texts: MaskedTexts,
    optimizer: torch.optim.Optimizer,
    config: PretrainConfig,
    step: int,
) -> int:
    """A step of ``pipelines.pretrain``, part by part; the tokens that went through an encoder."""
    with clock("texts"):
        batch = texts[step]
    with torch.autocast(config.device, dtype=torch.bfloat16):
        with clock("encode texts"):
            query_BD = model.retriever.questions(batch.x.ids_NL, batch.x.mask_NL)
        with clock("search"):
            own = [text.row for text in batch.texts]
            rows = propose(index, query_BD.detach().float().numpy(), own, config.proposed)
        with clock("encode passages"):
            rows_BK = np.pad(rows, ((0, 0), (0, 1)), constant_values=NULL)
            relevance_BK, encoded = relevance(model.retriever, query_BD, rows_BK, blocks, config.max_block)
        with clock("read"):
            gold_BKM, tokens = read(model.reader, batch, rows_BK, blocks, config.max_block)
    with clock("backward and update"):
        loss = marginal_nll(gold_BKM, relevance_BK, batch.labels_BM != IGNORED)
        optimise(loss, optimizer, rate=rates(step, config), clip=config.clip, step=step)
    return tokens + encoded + batch.x.ids_NL.numel()


def masked_step(
    clock: Clock,
    model: KnowledgeAugmentedEncoder,
    texts: MaskedTexts,
    optimizer: torch.optim.Optimizer,
    config: PretrainConfig,
    step: int,
) -> int:
    """A step of ``pipelines.masked_lm``, part by part; the tokens that went through the encoder."""
    with clock("texts"):
        batch = texts[step]
    with clock("read"), torch.autocast(config.device, dtype=torch.bfloat16):
        loss = masked_lm.nll(model, batch)
    with clock("backward and update"):
        optimise(loss, optimizer, rate=config.lr, clip=config.clip, step=step)
    return batch.x.ids_NL.numel()


def figures(clock: Clock, steps: int, tokens: int, batch: int) -> dict[str, Any]:
    """Rates, and the seconds of a step by part."""
    seconds = sum(clock.seconds.values())
    return {
        "steps_per_s": round(steps / seconds, 3),
        "texts_per_s": round(steps * batch / seconds, 1),
        "tokens_per_s": round(tokens / seconds),
        "tokens_a_step": round(tokens / steps),
        "seconds_a_step": {part: round(spent / steps, 4) for part, spent in clock.seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    for name in ("--corpus", "--encoder", "--retriever", "--work", "--out"):
        add(name, type=Path, required=True)
    add("--batch", type=int, default=16)
    add("--masking", default="salient", help="of REALM's texts (default: salient)")
    add("--steps", type=int, default=30, help="of each kind that are timed")
    args = parser.parse_args()
    torch.manual_seed(0)
    config = PretrainConfig(
        corpus=args.corpus,
        encoder=args.encoder,
        retriever=args.retriever,
        out=args.work,
        batch=args.batch,
        dropout=0.0,
        max_block=160,
        masking=args.masking,
    )
    model = Realm(DualEncoder.load(config.retriever), KnowledgeAugmentedEncoder.from_encoder(config.encoder))
    plain = KnowledgeAugmentedEncoder.from_encoder(config.encoder)
    for each in (model, plain):
        set_dropout(each.train(), 0.0)
    blocks = Blocks.open(config.corpus, TextTokenizer(config.encoder), args.work / "blocks", progress=Bars())
    salient = masked_texts(config, blocks, None)
    words = MaskedTexts(
        blocks.store,
        blocks.tokenizer,
        chooser("words", None, rate=0.15, count=1),
        batch=args.batch,
        max_text=config.max_text,
        seed=0,
        masks_only=False,
    )
    both = torch.optim.AdamW(groups(model.retriever, model.reader, decay=0.01))
    alone = torch.optim.AdamW(groups(plain, decay=0.01))
    live = LiveIndex(config)
    began = time.perf_counter()
    index = live.at(model.retriever, 0)
    refresh = time.perf_counter() - began
    rows: dict[str, Any] = {"passages": len(blocks), "refresh_s": round(refresh, 1)}
    clocks, tokens = {"realm": Clock(), "masked_lm": Clock()}, {"realm": 0, "masked_lm": 0}
    for step in range(args.steps + LEFT_OUT):  # in turn: what else the machine does hits both alike
        if step == LEFT_OUT:
            clocks, tokens = {"realm": Clock(), "masked_lm": Clock()}, {"realm": 0, "masked_lm": 0}
        tokens["realm"] += realm_step(clocks["realm"], model, index, blocks, salient, both, config, step)
        tokens["masked_lm"] += masked_step(clocks["masked_lm"], plain, words, alone, config, step)
    live.close()
    for name, clock in clocks.items():
        rows[name] = figures(clock, args.steps, tokens[name], args.batch)
    rows["price"] = round(rows["masked_lm"]["steps_per_s"] / rows["realm"]["steps_per_s"], 1)
    rows["price_by_token"] = round(rows["masked_lm"]["tokens_per_s"] / rows["realm"]["tokens_per_s"], 2)
    corpus = f"{len(blocks):,} passages of {args.corpus.name}"
    record(args.out, rows, corpus=corpus, questions=f"{args.batch} texts of up to {config.max_text} wordpieces a step")


if __name__ == "__main__":
    main()
