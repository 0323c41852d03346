"""Read documents and report the progress, for builds and updates."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ragqa.corpus.formats.base import Document
from ragqa.corpus.sources import CorpusReport, count_input_bytes, read_documents
from ragqa.progress import Progress


def read_with_progress(
    paths: Sequence[Path],
    progress: Progress,
    report: CorpusReport,
    *,
    strict: bool,
    ocr: bool,
    on_left_out: Callable[[Document], object],
) -> Iterator[Document]:
    """Yield the documents of ``read_documents``, and report the progress of reading.

    ``progress`` receives the number of bytes read, and the name of a file that takes long. Other arguments: as for
    ``read_documents``.

    Raises:
        BadInput, BadLine, MissingExtra: as for ``read_documents``.
    """
    with progress.step("reading", count_input_bytes(paths), "B") as step:

        def show_wait(path: str, seconds: float) -> None:
            step.advance_to(report.bytes_read, f"{path.rpartition('/')[2]}: {seconds:.0f} s")

        documents = read_documents(
            paths, strict=strict, ocr=ocr, report=report, on_left_out=on_left_out, on_wait=show_wait
        )
        for document in documents:
            yield document
            step.advance_to(report.bytes_read)
        step.advance_to(report.bytes_read)
