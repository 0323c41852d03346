"""``ragqa index`` and ``ragqa update``: build and change indexes."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ragqa.artefacts.paths import DEFAULT_ENCODER
from ragqa.cli.excerpts import wrap_report
from ragqa.cli.options import BuildDeviceOption, CountsAsJsonOption, StrictOption
from ragqa.cli.output import print_error, print_result
from ragqa.corpus.splitters import DEFAULT_BLOCKS
from ragqa.errors import BadInput
from ragqa.retrieval.registry import DEFAULT_ENGINE, DEFAULT_RETRIEVER, RetrieverKind, TermEngine
from ragqa.retrieval.vectors.index_kinds import DEFAULT_KIND, DEFAULT_RECALL, IndexKind

WatchOption = Annotated[bool, typer.Option("--watch", help="Keep running, and sync after each change of a file.")]


def index(
    paths: Annotated[
        list[Path], typer.Argument(help="Folders or files: text, PDF, tables, a Wikipedia dump …; or hf:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="Directory of the index; an existing index is brought up to date.")],
    retriever: Annotated[str, typer.Option(help=f"Retriever: {', '.join(RetrieverKind)}.")] = DEFAULT_RETRIEVER,
    kind: Annotated[str, typer.Option(help=f"Kind of vector index: {', '.join(IndexKind)}.")] = DEFAULT_KIND,
    recall: Annotated[
        float, typer.Option(help="Share of the 20 nearest passages to find (kinds other than flat).")
    ] = DEFAULT_RECALL,
    questions: Annotated[
        Path | None, typer.Option(help="File of sample questions to measure the recall.  [default: made-up questions]")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Encoder: an export, Hugging Face directory or hub name.")
    ] = DEFAULT_ENCODER,
    engine: Annotated[str, typer.Option(help=f"Engine of BM25: {' or '.join(TermEngine)}.")] = DEFAULT_ENGINE,
    blocks: Annotated[str, typer.Option(help="Unit of passages: sentences, words or wordpieces.")] = DEFAULT_BLOCKS,
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Size of a passage.  [default: 100 words or 288 wordpieces]")
    ] = None,
    ocr: Annotated[bool, typer.Option("--ocr", help="Read images and scanned pages, with Tesseract.")] = False,
    watch: WatchOption = False,
    strict: StrictOption = False,
    device: BuildDeviceOption = "cpu",
    as_json: CountsAsJsonOption = False,
) -> None:
    """Index documents, or bring the index of the same folders up to date.

    The same command continues an interrupted run.
    """
    from ragqa.indexing.build import IndexConfig
    from ragqa.indexing.summary import format_build, format_update
    from ragqa.indexing.sync import build_or_sync_index
    from ragqa.indexing.update import UpdateReport
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
        ocr=ocr,
        strict=strict,
        device=device,
    )
    report = build_or_sync_index(paths, out, config, on_choice=print_error, progress=Bars())
    if isinstance(report, UpdateReport):
        _print_summary(format_update(report, out, as_json=as_json), as_json)
    else:
        _print_summary(format_build(report, out, as_json=as_json), as_json)
    if watch:
        _watch(out, [], strict=strict, device=device, as_json=as_json)


def update(
    index: Annotated[Path, typer.Argument(help="Index directory; it can be searched during the update.")],
    add: Annotated[
        list[Path] | None,
        typer.Option(help="Folders or files to add. Known documents are replaced; those whose files are gone stay."),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(help="Documents to delete: ids as cited, or paths of files.")
    ] = None,
    sync: Annotated[
        list[str] | None,
        typer.Option(help="Folders to sync: new, changed and deleted files.  [default: the folders of the index]"),
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Rewrite the index without deleted documents.")] = False,
    watch: WatchOption = False,
    strict: StrictOption = False,
    device: BuildDeviceOption = "cpu",
    as_json: CountsAsJsonOption = False,
) -> None:
    """Add, delete and replace documents, or sync folders.

    Open pipelines see the change on their next search.
    """
    from ragqa.indexing.summary import format_update
    from ragqa.indexing.sync import sync_index
    from ragqa.indexing.update import update_index
    from ragqa.progress import Bars

    folders = [folder for folder in sync or [] if folder]
    options: dict[str, Any] = {"compact": compact or None, "strict": strict, "device": device, "progress": Bars()}
    if sync is None and not watch:
        report = update_index(index, add=add or [], delete=delete or [], **options)
    elif add or delete:
        name = "--watch" if sync is None else "--sync"
        raise BadInput(f"{name} finds what to add and to delete: leave out --add and --delete")
    else:
        report = sync_index(index, folders, **options)
    _print_summary(format_update(report, index, as_json=as_json), as_json)
    if watch:
        _watch(index, folders, strict=strict, device=device, as_json=as_json)


def _print_summary(summary: str, as_json: bool) -> None:
    print_result(summary if as_json else wrap_report(summary))


def _watch(index: Path, folders: list[str], *, strict: bool, device: str, as_json: bool) -> None:
    from ragqa.indexing.summary import format_update
    from ragqa.indexing.update import UpdateReport
    from ragqa.indexing.watch import watch_folders

    problems = ""

    def show(report: UpdateReport) -> None:
        nonlocal problems  # every sync finds them again, so they are printed only if they change
        summary, before = format_update(report, index, as_json=as_json), problems
        line, _, problems = summary.partition("\n")
        _print_summary(line if problems == before else summary, as_json)

    print_error("watching the folders for changes; Ctrl-C ends")
    with suppress(KeyboardInterrupt):
        watch_folders(
            index,
            folders,
            on_report=show,
            on_error=print_error,
            strict=strict,
            device=device,
        )
