"""``ragqa index`` and ``ragqa update``."""

from pathlib import Path
from typing import Annotated

import typer

from ragqa.cli.options import BuildDeviceOption, CountsAsJsonOption, SkipBadOption
from ragqa.cli.output import print_result
from ragqa.retrieval.registry import DEFAULT_ENGINE, DEFAULT_RETRIEVER, RetrieverKind, TermEngine
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, IndexKind


def index(
    paths: Annotated[
        list[Path], typer.Argument(help="Folders or files: text, PDF, tables, a Wikipedia dump …; or hf:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="Directory of the index; an existing index is replaced.")],
    retriever: Annotated[str, typer.Option(help=f"Retriever: {', '.join(RetrieverKind)}.")] = DEFAULT_RETRIEVER,
    kind: Annotated[str, typer.Option(help=f"Kind of vector index: {', '.join(IndexKind)}.")] = DEFAULT_KIND,
    recall: Annotated[
        float, typer.Option(help="Share of the 20 nearest passages to find (kinds other than flat).")
    ] = 0.95,
    questions: Annotated[
        Path | None, typer.Option(help="File of sample questions to measure the recall.  [default: made-up questions]")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder: an export, Hugging Face directory or hub name.")] = "default",
    engine: Annotated[str, typer.Option(help=f"Engine of BM25: {' or '.join(TermEngine)}.")] = DEFAULT_ENGINE,
    blocks: Annotated[str, typer.Option(help="Unit of passages: words, sentences or wordpieces.")] = "words",
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Size of a passage.  [default: 100 words or 288 wordpieces]")
    ] = None,
    skip_bad: SkipBadOption = False,
    device: BuildDeviceOption = "cpu",
    as_json: CountsAsJsonOption = False,
) -> None:
    """Index documents; an interrupted run continues."""
    from ragqa.indexing.build import IndexConfig, build_index
    from ragqa.indexing.summary import format_build
    from ragqa.progress import Bars

    config = IndexConfig(
        retriever=retriever,
        kind=kind,
        recall=recall,
        questions=str(questions) if questions else None,
        encoder=encoder,
        engine=engine,
        blocks=blocks,
        block_size=block_size,
        skip_bad=skip_bad,
        device=device,
    )
    report = build_index(paths, out, config, progress=Bars())
    print_result(format_build(report, out, as_json=as_json))


def update(
    index: Annotated[Path, typer.Argument(help="Index directory; it can be searched during the update.")],
    add: Annotated[
        list[Path] | None,
        typer.Option(help="Folders or files to add. Known documents are replaced; those whose files are gone stay."),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(help="Documents to delete: ids as cited, or paths of files.")
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Rewrite the index without deleted documents.")] = False,
    skip_bad: SkipBadOption = False,
    device: BuildDeviceOption = "cpu",
    as_json: CountsAsJsonOption = False,
) -> None:
    """Add, delete and replace documents; open pipelines see the change on their next search."""
    from ragqa.indexing.summary import format_update
    from ragqa.indexing.update import update_index
    from ragqa.progress import Bars

    report = update_index(
        index,
        add=add or [],
        delete=delete or [],
        compact=compact or None,
        skip_bad=skip_bad,
        device=device,
        progress=Bars(),
    )
    print_result(format_update(report, index, as_json=as_json))
