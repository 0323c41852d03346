"""``ragqa export``: a trained encoder or reader as 8-bit ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from ragqa.cli.output import print_result
from ragqa.terminal import to_one_line


def export(
    source: Annotated[str, typer.Argument(help="Directory of a trained encoder or reader, or a hub name.")],
    out: Annotated[Path, typer.Option(help="Directory of the export.")],
    share: Annotated[Path | None, typer.Option(help="Export whose word embeddings to share if they are equal.")] = None,
    card: Annotated[Path | None, typer.Option(help="Model card (Markdown) to add to the export.")] = None,
) -> None:
    """Export a trained encoder or reader to 8-bit ONNX, which runs without torch."""
    from ragqa.runtime.export import export as export_model

    manifest = export_model(source, out, share=share, card=card)
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    print_result(f"{manifest.kind} {manifest.fingerprint} in {to_one_line(str(out))}: {size:.1f} MB")
