"""The mean of the weights of readers that go on from each other: often better than any of them.

    python -m pipelines.span_reader.average runs/second/model runs/third/model runs/fourth/model --out runs/reader/model

Each of them ended at a learning rate of 0, at another place of the same valley of the loss; between these places it is
flatter (Izmailov et al. 2018, "Averaging weights leads to wider optima"; Wortsman et al. 2022, "Model soups"). Readers
that began apart have nothing to do with each other's weights, and their mean is worthless: try it on held-out
questions.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from pipelines.common.run import write_model
from ragqa.errors import BadInput, Mismatch
from ragqa.models.readers import check_replaceable, load_reader
from ragqa.runtime.tokens import TextTokenizer


def average(readers: Sequence[Path], out: Path) -> None:
    """Write the mean of the weights of ``readers`` into the directory ``out``, with the last one's configuration.

    Raises:
        BadInput: fewer than two are given, or ``out`` is something else's, or one of them.
        ArtefactError, DamagedArtefact: a directory is no torch reader, or not whole.
        Mismatch: they are not of one kind, size and tokenizer.
    """
    if len(readers) < 2:
        raise BadInput("a mean is of two readers at least")
    if out.resolve() in [path.resolve() for path in readers]:
        raise BadInput(f"--out {out} is one of the readers: choose another directory")
    check_replaceable(out)
    made, tokenizer = load_reader(readers[-1]), TextTokenizer(readers[-1])
    total = {name: value.double() for name, value in made.state_dict().items()}
    for path in readers[:-1]:
        other = load_reader(path)
        weights = other.state_dict()
        if type(other) is not type(made) or _shapes(weights) != _shapes(total):
            raise Mismatch(
                f"{path} is of another kind or size than {readers[-1]}: only readers that are alike have a mean"
            )
        if not TextTokenizer(path).cuts_like(tokenizer):
            raise Mismatch(f"{path} has other wordpieces than {readers[-1]}: only readers that are alike have a mean")
        for name, value in weights.items():
            total[name] += value
    made.load_state_dict({name: value / len(readers) for name, value in total.items()})
    write_model(made, out, readers[-1] / "tokenizer.json")


def _shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in weights.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """See above; the command line, or ``arguments``."""
    from ragqa.cli.config import report_errors

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", type=Path, nargs="+", help="torch directories; the last one's configuration is kept")
    parser.add_argument("--out", type=Path, required=True, help="directory to write; a reader there is replaced")
    args = parser.parse_args(arguments)
    with report_errors("pipelines.span_reader.average"):
        average(args.readers, args.out)
        print(args.out)


if __name__ == "__main__":
    main()
