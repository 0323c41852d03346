"""``/documents`` and ``/files``: list, read, add and delete documents, and send PDFs."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse

from ragqa.corpus.document_list import IndexedDocument
from ragqa.indexing.update import UpdateReport
from ragqa.indexing.uploads import UploadFolder, check_file_name
from ragqa.serve.request_limits import RefusedRequest
from ragqa.serve.routes.common import IndexQuery, WorkOfApp, place_to_row, reply_json
from ragqa.serve.schemas import ChangeReply, DocumentsReply, DocumentTextReply, describe_errors
from ragqa.serve.work import ServedIndex
from ragqa.types import Hit, Passage

MAX_LISTED = 1000
"""Maximum number of documents, or of passages of a document, in a response."""
PIECE_BYTES = 1 << 18
"""Maximum number of bytes of a file that are read and sent at once."""
router = APIRouter(tags=["documents"])
FirstNumber = Annotated[
    int | None, Query(ge=0, le=2**40, description="Number of the first document, or of the first part, from 0.")
]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED, description="Number of documents, or of parts, at most.")]
Id = Annotated[str, PathParameter(description="Id in the list of documents, or `document` of a source.")]
Path = Annotated[str | None, Query(max_length=10_000, description="Path of the file, if several have the id.")]
Offset = Annotated[int | None, Query(ge=0, le=2**40)]


@router.get("/documents", responses={200: {"model": DocumentsReply}, **describe_errors(400, 401, 404, 503)})
async def list_documents(
    work: WorkOfApp, index: IndexQuery = None, first: FirstNumber = None, limit: Limit = 100
) -> Response:
    """List the documents of an index, in the order of the index."""
    served = work.find_index(index)

    def read() -> dict[str, Any]:
        _, listed = served.read_documents()
        rows = [_to_row(document) for document in listed.read(first or 0, limit)]
        return {"index": served.name, "total": len(listed), "first": first or 0, "documents": rows}

    return reply_json(await asyncio.to_thread(read))


@router.get(
    "/documents/{id:path}", responses={200: {"model": DocumentTextReply}, **describe_errors(400, 401, 404, 503)}
)
async def read_document(
    request: Request,
    work: WorkOfApp,
    id: Id,
    index: IndexQuery = None,
    path: Path = None,
    start: Annotated[Offset, Query(description="First character of the span to mark.")] = None,
    end: Annotated[Offset, Query(description="End of the span to mark.")] = None,
    first: FirstNumber = None,
    limit: Limit = 200,
) -> Response:
    """Return the text of a document in parts, with the span from ``start`` to ``end`` marked."""
    served = work.find_index(index)

    def read() -> dict[str, Any]:
        store, listed = served.read_documents()
        document = _choose(listed.find(id), path)
        rows = listed.find_passage_rows(document)
        begin = first
        if begin is None:
            is_before = 0 if start is None else sum(store[row].end <= start for row in rows.tolist())
            begin = max(0, is_before - limit // 2) if len(rows) > limit else 0
        passages = store.get(rows[begin : begin + limit].tolist())
        parts = [_to_part(passage, start, end) for passage in passages]
        file = _format_file_address(served, document) if _find_pdf(request, document) else None
        return {**_to_row(document), "index": served.name, "file": file, "first": begin, "parts": parts}

    return reply_json(await asyncio.to_thread(read))


_PDF = {"content": {"application/pdf": {"schema": {"type": "string", "format": "binary"}}}}


@router.get("/files/{id:path}", responses={200: _PDF, **describe_errors(400, 401, 404, 503)})
async def send_file(request: Request, work: WorkOfApp, id: Id, index: IndexQuery = None, path: Path = None) -> Response:
    """Send the PDF of a document, if the server was started with ``--files`` for its folder."""
    served = work.find_index(index)

    def open_pdf() -> tuple[FilePath, BinaryIO]:
        document = _choose(served.read_documents()[1].find(id), path)
        if not (file := _find_pdf(request, document)):
            raise RefusedRequest(
                404, "the file of this document is not served: only PDFs in the folders of --files are"
            )
        return file, file.open("rb")

    file, content = await asyncio.to_thread(open_pdf)
    headers = {
        "Content-Length": str(os.fstat(content.fileno()).st_size),
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(file.name, safe='')}",
    }
    return StreamingResponse(_iter_file(content), headers=headers, media_type="application/pdf")


def _iter_file(content: BinaryIO) -> Iterator[bytes]:
    with content:
        while piece := content.read(PIECE_BYTES):
            yield piece


def _find_pdf(request: Request, document: IndexedDocument) -> FilePath | None:
    """Return the PDF of a document; None if it is not in a folder whose files are served.

    The index of another user can name any path, and a link can replace a file. So folder and ending are checked after
    links are followed.
    """
    file = FilePath(document.path)
    folders: tuple[FilePath, ...] = request.app.state.file_folders
    if not folders or not file.is_absolute():
        return None
    try:
        real = file.resolve()
    except (OSError, RuntimeError, ValueError):  # circular links, or a zero byte
        return None
    is_inside = any(real.is_relative_to(folder) for folder in folders)
    return real if is_inside and real.suffix.lower() == ".pdf" and real.is_file() else None


def _format_file_address(served: ServedIndex, document: IndexedDocument) -> str:
    return f"files/{quote(document.id, safe='')}?{urlencode({'index': served.name, 'path': document.path})}"


_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}


@router.post(
    "/documents",
    responses={200: {"model": ChangeReply}, **describe_errors(400, 401, 403, 404, 409, 413, 503)},
    openapi_extra={"requestBody": _FILE},
)
async def add_document(
    request: Request,
    work: WorkOfApp,
    name: Annotated[str, Query(min_length=1, max_length=200, description="Name of the file, such as report.pdf.")],
    index: IndexQuery = None,
) -> Response:
    """Add a file to an index; the body of the request is the content of the file.

    A file of the same name that was added before is replaced.
    """
    folder = _open_folder(request, work.find_index(index))
    check_file_name(name)
    content = await request.body()
    report = await work.change(lambda: folder.add(name, content))
    return reply_json(_report_to_row(report, str(folder.path / name)))


@router.delete(
    "/documents/{id:path}", responses={200: {"model": ChangeReply}, **describe_errors(400, 401, 403, 404, 409)}
)
async def delete_document(
    request: Request, work: WorkOfApp, id: Id, index: IndexQuery = None, path: Path = None
) -> Response:
    """Delete a document from an index.

    A file that was added by ``POST /documents`` is also deleted if the document is the whole file. If several
    documents have the id, ``path`` must name the file of one of them, and the others stay.
    """
    served = work.find_index(index)
    folder = _open_folder(request, served)
    document = _choose((await asyncio.to_thread(served.read_documents))[1].find(id), path)
    report = await work.change(lambda: folder.delete(document.id, document.path))
    return reply_json(_report_to_row(report, None))


def _open_folder(request: Request, served: ServedIndex) -> UploadFolder:
    if not request.app.state.can_edit:
        raise RefusedRequest(403, "this server does not change documents: start it with --allow-edit")
    if served.path is None:
        raise RefusedRequest(403, f"the index {served.name} is on another server: change it there")
    return UploadFolder(served.path)


def _choose(documents: list[IndexedDocument], path: str | None) -> IndexedDocument:
    wanted = [document for document in documents if path in (None, document.path)]
    if not wanted:
        raise RefusedRequest(404, "there is no such document: GET /documents lists all")
    if len(wanted) > 1:
        raise RefusedRequest(400, f"{len(wanted)} documents have this id: name the path of one")
    return wanted[0]


def _to_row(document: IndexedDocument) -> dict[str, Any]:
    row = asdict(document)
    del row["first_row"]
    return {**row, "tags": list(document.tags), "date": document.date or None}


def _to_part(passage: Passage, start: int | None, end: int | None) -> dict[str, Any]:
    marks = []
    if start is not None and end is not None:
        low, high = max(start, passage.start) - passage.start, min(end, passage.end) - passage.start
        marks = [(low, high)] if low < high else []
    return {**place_to_row(Hit(passage, 0.0)), "marks": marks}


def _report_to_row(report: UpdateReport, document: str | None) -> dict[str, Any]:
    names = ("added", "replaced", "unchanged", "deleted", "passages", "seconds")
    return {**{name: getattr(report, name) for name in names}, "document": document}
