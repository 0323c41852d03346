"""``ragqa export``: export a trained encoder or reader to another format."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ragqa.cli.output import print_result
from ragqa.errors import BadInput
from ragqa.terminal import to_one_line


class ExportFormat(StrEnum):
    """Format of an exported model."""

    ONNX = "onnx"
    SENTENCE_TRANSFORMERS = "sentence-transformers"


def export(
    source: Annotated[str, typer.Argument(help="Directory of a trained encoder or reader, or a hub name.")],
    out: Annotated[Path, typer.Option(help="Directory of the export.")],
    share: Annotated[
        Path | None, typer.Option(help="Export of an encoder with the same word embeddings; their file is shared.")
    ] = None,
    card: Annotated[Path | None, typer.Option(help="Model card (Markdown) to add to the export.")] = None,
    format: Annotated[
        ExportFormat, typer.Option(help="8-bit ONNX, or a folder of sentence-transformers (encoders).")
    ] = ExportFormat.ONNX,
) -> None:
    """Export a trained encoder or reader to 8-bit ONNX or to sentence-transformers.

    The export to ONNX runs without torch.
    """
    if format == ExportFormat.SENTENCE_TRANSFORMERS:
        if share is not None:
            raise BadInput("--share is for --format onnx: leave it out")
        from ragqa.runtime.sentence_transformers import export_sentence_transformer

        settings = export_sentence_transformer(source, out, card=card)
        kind = "unit vectors" if settings["normalise"] else "vectors"
        description = f"{settings['width']} values, pooling {settings['pooling']}, {kind}"
        print_result(f"sentence-transformers model in {to_one_line(str(out))}: {description}")
        return
    from ragqa.runtime.export import export as export_model

    manifest = export_model(source, out, share=share, card=card)
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    print_result(f"{manifest.kind} {manifest.fingerprint} in {to_one_line(str(out))}: {size:.1f} MB")
