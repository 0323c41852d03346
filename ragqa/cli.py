"""The ``ragqa`` command: parse, one library call, print. Results on stdout, all else on stderr."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ragqa.errors import RagqaError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ANSWERED, DECLINED, BAD = 0, 1, 2


@app.callback()
def root() -> None:
    """Answers from your own documents, with their sources."""


@app.command(epilog='Example: ragqa ask "Who built the first reflecting telescope?"')
def ask(
    question: Annotated[str | None, typer.Argument(help="Without one: a line each from stdin, or a prompt.")] = None,
    index: Annotated[Path | None, typer.Option("--index", "--pipeline", help="Index or pipeline directory.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Passages to read.")] = None,
    retriever: Annotated[str | None, typer.Option(help="dense, bm25 or hybrid.")] = None,
    reader: Annotated[Path | None, typer.Option(help="A reader of your own.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Another form of the encoder the index was made with.")] = None,
    device: Annotated[str, typer.Option(help="Where the index is searched and torch models run.")] = "cpu",
    min_confidence: Annotated[float, typer.Option(min=0, max=1, help="Decline below this.")] = 0.2,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Answer a question from an index; without --index, from the demo encyclopedia."""
    from ragqa import asking
    from ragqa.pipeline import Pipeline

    if index is None:
        from ragqa.demo import demo_index
        from ragqa.progress import Bars

        index = demo_index(progress=Bars())
    pipeline = Pipeline.load(index, retriever=retriever, reader=reader, encoder=encoder, k=k, device=device)
    asker = asking.Asker(pipeline, min_confidence)
    show = asking.as_json if as_json else asking.as_text
    if question is not None:
        answer = asker.ask([question])[0]
        print(show(answer))
        raise typer.Exit(DECLINED if answer.text is None else ANSWERED)
    if sys.stdin.isatty():
        asking.converse(asker, show)
        return
    for answer in asker.stream(line for line in sys.stdin if line.strip()):
        print(show(answer), flush=True)


@app.command(epilog="Example: ragqa index notes/ --out notes.index")
def index(
    paths: Annotated[list[Path], typer.Argument(help="Folders or files: text, Markdown, HTML, PDF, JSONL, TSV, wiki.")],
    out: Annotated[Path, typer.Option(help="Index directory to make, or to make again.")],
    retriever: Annotated[str, typer.Option(help="dense, bm25 or hybrid (both).")] = "hybrid",
    kind: Annotated[str, typer.Option(help="Of the dense part: flat, hnsw, ivf-flat, ivf-pq, sq8.")] = "flat",
    encoder: Annotated[str, typer.Option(help="Export, Hugging Face directory or hub name.")] = "default",
    engine: Annotated[str, typer.Option(help="Of BM25: tantivy or lucene.")] = "tantivy",
    blocks: Annotated[str, typer.Option(help="What a passage is: words, sentences or wordpieces.")] = "words",
    block_size: Annotated[int | None, typer.Option(min=1, help="100 words or 288 wordpieces.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count malformed records.")] = False,
    device: Annotated[str, typer.Option(help="Where torch encoders and FAISS run: cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="The counts as one JSON object.")] = False,
) -> None:
    """Make an index of documents; a run that was killed goes on where it was."""
    from ragqa.indexing import IndexConfig, build_index, summary
    from ragqa.progress import Bars

    config = IndexConfig(
        retriever=retriever,
        kind=kind,
        encoder=encoder,
        engine=engine,
        blocks=blocks,
        block_size=block_size,
        skip_bad=skip_bad,
        device=device,
    )
    report = build_index(paths, out, config, progress=Bars())
    print(summary(report, out, as_json=as_json))


@app.command(epilog="Example: ragqa export runs/reader/model --out my-reader")
def export(
    source: Annotated[str, typer.Argument(help="Directory of a trained encoder or reader, or a hub name.")],
    out: Annotated[Path, typer.Option(help="Directory to write.")],
    share: Annotated[Path | None, typer.Option(help="Export with the same word embeddings, to use its file.")] = None,
    card: Annotated[Path | None, typer.Option(help="Model card (Markdown) to put beside the weights.")] = None,
) -> None:
    """Export a trained encoder or reader to 8-bit ONNX, which answers without torch."""
    from ragqa.runtime.export import export as run

    manifest = run(source, out, share=share, card=card)
    size = sum(file["size"] for file in manifest.files.values()) / 1e6
    print(f"{manifest.kind} {manifest.fingerprint} in {out}: {size:.1f} MB")


@app.command(epilog="Example: ragqa demo --rebuild")
def demo(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index again.")] = False,
) -> None:
    """Make the index of the demo encyclopedia and say where it is."""
    from ragqa.demo import demo_index
    from ragqa.paths import demo_dir
    from ragqa.progress import Bars

    target = demo_index(rebuild=rebuild, progress=Bars())
    print(f"index      {target}")
    print(f"articles   {demo_dir() / 'articles'}")
    print(f"questions  {demo_dir() / 'questions.jsonl'}")


def main() -> None:
    """Entry point: every error of ours is one line and an exit status."""
    try:
        app()
    except RagqaError as error:
        print(f"ragqa: {error}", file=sys.stderr)
        raise SystemExit(BAD) from None
    except KeyboardInterrupt:
        print("ragqa: interrupted; the same command goes on where it was", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(BAD) from None
