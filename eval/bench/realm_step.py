"""What retrieval costs in pretraining: a step of REALM beside a step of plain masked language modelling.

    python -m eval.bench.realm_step --corpus wiki.index --encoder runs/encoder/model --retriever runs/cloze/model \\
        --work DIR --out docs/measurements/realm_step.json

The recipes themselves, the same encoder and as many texts a step: masked language modelling, REALM, and masked language
modelling once more. Means over steps, and where the time of each goes. REALM's passages are embedded once, as a
refresh would do again every so many steps.
"""

import argparse
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import torch

from eval.bench.record import record
from eval.command import one_line
from pipelines import masked_lm
from pipelines.common.config import MASKINGS
from pipelines.common.masked_text import MaskedTexts
from pipelines.common.processes import use
from pipelines.masked_lm import MaskedLMConfig
from pipelines.realm import pretrain
from pipelines.realm.pretrain import PretrainConfig
from ragqa import artefacts
from ragqa.progress import Bars
from ragqa.training.log import read_rows

LEFT_OUT = 5
"""Steps of each run before the clock counts; compiling takes longer than all others."""
PARTS: dict[str, tuple[tuple[Any, str, str], ...]] = {
    "masked_lm": (
        (MaskedTexts, "__getitem__", "texts"),
        (masked_lm, "nll", "read"),
        (masked_lm, "optimise", "backward and update"),
    ),
    "realm": (
        (MaskedTexts, "__getitem__", "texts"),
        (pretrain, "propose", "search"),
        (pretrain, "relevance", "encode passages"),
        (pretrain, "read", "read"),
        (pretrain, "optimise", "backward and update"),
    ),
}
"""Of a recipe's step: what is called once in it, and what that is called here."""
REST = {"masked_lm": "the rest", "realm": "encode texts, and the rest"}
Seconds = dict[str, list[float]]


@contextmanager
def timed(kind: str, device: str) -> Iterator[Seconds]:
    """The seconds of each part, step by step, while a recipe runs; a GPU is waited for before and after."""
    seconds: Seconds = defaultdict(list)
    settle = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def wrapped(call: Callable[..., Any], part: str) -> Callable[..., Any]:
        def clocked(*arguments: Any, **options: Any) -> Any:
            settle()
            began = time.perf_counter()
            found = call(*arguments, **options)
            settle()
            seconds[part].append(time.perf_counter() - began)
            return found

        return clocked

    with ExitStack() as patches:
        for owner, name, part in PARTS[kind]:
            patches.enter_context(patch.object(owner, name, wrapped(getattr(owner, name), part)))
        yield seconds


def figures(kind: str, runs: Sequence[tuple[Path, Seconds]], batch: int) -> dict[str, Any]:
    """Rates, and the seconds of a step by part: means over the steps of all runs of a kind, so that parts add up."""
    rows = [row for out, _ in runs for row in read_rows(out) if row["step"] >= LEFT_OUT and "seconds" in row]
    step = fmean(row["seconds"] for row in rows)
    parts = {
        part: fmean(spent for _, seconds in runs for spent in seconds[part][LEFT_OUT:]) for _, _, part in PARTS[kind]
    }
    return {
        "steps": len(rows),
        "steps_per_s": round(1 / step, 3),
        "texts_per_s": round(batch / step, 1),
        "tokens_per_s": round(sum(row["tokens"] for row in rows) / len(rows) / step),
        "tokens_a_step": round(median(row["tokens"] for row in rows)),
        "utilisation": round(median(row["utilisation"] for row in rows), 3),
        "seconds_a_step": {part: round(spent, 6) for part, spent in parts.items()}
        | {REST[kind]: round(step - sum(parts.values()), 6)},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    for name in ("--corpus", "--encoder", "--retriever", "--work", "--out"):
        add(name, type=Path, required=True)
    add("--batch", type=int, default=16)
    add("--k", type=int, default=8, help="passages of a text, the null passage among them")
    add("--masking", default="salient", choices=MASKINGS, help="of REALM's texts (default: salient)")
    add("--steps", type=int, default=40, help="of each run")
    add("--refresh-every", type=int, default=500, help="steps, for the price with the refresh of the index")
    add("--compile", action="store_true", help="as of the recipes")
    add("--device", default="cpu", help="as of the recipes")
    with one_line():
        go(parser.parse_args(arguments))


def go(args: argparse.Namespace) -> None:
    """Run all three, and write what they took."""
    use(args.device)
    common = {
        "corpus": args.corpus,
        "batch": args.batch,
        "steps": args.steps + LEFT_OUT,
        "max_text": 64,
        "dropout": 0.0,
        "compile": args.compile,
        "device": args.device,
        "save_every": 1_000_000,
    }
    runs: dict[str, list[tuple[Path, Seconds]]] = {"masked_lm": [], "realm": []}
    for number, kind in enumerate(("masked_lm", "realm", "masked_lm")):
        out = args.work / f"{number}-{kind}"
        shutil.rmtree(out, ignore_errors=True)  # a run that is there would be gone on with
        with timed(kind, args.device) as seconds:
            if kind == "masked_lm":
                masked_lm.main(MaskedLMConfig(encoder=args.encoder, out=out, **common), progress=Bars())
            else:
                own = {"retriever": args.retriever, "masking": args.masking, "k": args.k, "max_block": 160, "frozen": 0}
                pretrain.main(PretrainConfig(encoder=args.encoder, out=out, **own, **common), progress=Bars())
        runs[kind].append((out, seconds))
    found: dict[str, Any] = {kind: figures(kind, each, args.batch) for kind, each in runs.items()}
    found["refresh_s"] = next(row["swap_stood"] for row in read_rows(runs["realm"][0][0]) if "swap_stood" in row)
    plain, realm = (1 / found[kind]["steps_per_s"] for kind in ("masked_lm", "realm"))
    found["price"] = round(realm / plain, 1)
    found["price_with_refresh"] = round((realm + found["refresh_s"] / args.refresh_every) / plain, 1)
    found["price_by_token"] = round(found["masked_lm"]["tokens_per_s"] / found["realm"]["tokens_per_s"], 2)
    rows = artefacts.peek(args.corpus).config["passages"]
    record(
        args.out,
        found,
        corpus=f"{rows:,} passages of {args.corpus.name}",
        questions=f"{args.batch} texts of up to 64 wordpieces a step",
    )


if __name__ == "__main__":
    main()
