"""Average the weights of readers from successive training runs.

    python -m pipelines.span_reader.average runs/second/model runs/third/model runs/fourth/model --out runs/reader/model

Each run after the first must begin with the reader of the previous run. Then all readers lie in one valley of the loss,
and their mean lies in a flatter part of this valley (Izmailov et al. 2018, "Averaging weights leads to wider optima";
Wortsman et al. 2022, "Model soups"). The mean of readers that were trained independently is worthless. Evaluate the
result on held-out questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ragqa.errors import BadInput, Mismatch
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.settings.groups import POSITIONAL
from ragqa.terminal import print_text

if TYPE_CHECKING:
    from ragqa.models.span_readers import EncoderReader


@dataclass(frozen=True, kw_only=True)
class AverageConfig:
    """Settings of the command that averages readers."""

    readers: Annotated[tuple[Path, ...], POSITIONAL]
    """Directories of torch readers; the average has the configuration of the last reader."""
    out: Path
    """Directory to write; a reader in it is replaced."""


def average_readers(readers: Sequence[Path], out: Path) -> None:
    """Write a reader with the mean weights of readers and the configuration of the last one.

    Args:
        readers: directories of torch readers with the same head, early layer, size and tokenizer; at least two.
        out: directory to write, completely or not at all; a reader in it is replaced.

    Raises:
        BadInput: fewer than two readers are given, or ``out`` is one of them, holds other files or cannot be written.
        ArtefactError: a directory is not a torch reader, or is damaged.
        Mismatch: the readers differ in head, early layer, size or tokenizer.
    """
    # Imported here, so that --help needs no torch.
    from pipelines.common.run import write_model
    from ragqa.models.span_readers import check_replaceable, load_reader

    if len(readers) < 2:
        raise BadInput("an average needs at least two readers")
    if out.resolve() in [path.resolve() for path in readers]:
        raise BadInput(f"--out {out} is one of the readers: choose another directory")
    check_replaceable(out)
    last, tokenizer = load_reader(readers[-1]), TextTokenizer(readers[-1])
    # Sums are in float64, because in float32 the mean of many readers would depend on their order.
    total = {name: value.double() for name, value in last.state_dict().items()}
    for path in readers[:-1]:
        other = load_reader(path)
        if _describe(other) != _describe(last):
            differs = f"{path} has another head, early layer or size than {readers[-1]}"
            raise Mismatch(f"{differs}: their weights cannot be averaged")
        if not TextTokenizer(path).tokenizes_like(tokenizer):
            raise Mismatch(f"{path} has other wordpieces than {readers[-1]}: their weights cannot be averaged")
        for name, value in other.state_dict().items():
            total[name] += value
    last.load_state_dict({name: value / len(readers) for name, value in total.items()})
    write_model(last, out, readers[-1] / "tokenizer.json")


def _describe(reader: "EncoderReader") -> tuple[object, ...]:
    """Return the class, the early layer and the shapes, which must be equal in all readers."""
    shapes = {name: value.shape for name, value in reader.state_dict().items()}
    return type(reader), reader.describe().get("early_layer"), shapes


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ``arguments`` replace the arguments of the process."""
    with report_errors("pipelines.span_reader.average"):
        config = parse_config(AverageConfig, __doc__, arguments)
        average_readers(config.readers, config.out)
        print_text(str(config.out))


if __name__ == "__main__":
    main()
