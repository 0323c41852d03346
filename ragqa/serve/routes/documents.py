"""``/documents``: list, read, add and delete documents."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ragqa.corpus.documents import IndexedDocument
from ragqa.indexing.update import UpdateReport
from ragqa.indexing.uploads import UploadFolder, check_file_name
from ragqa.serve.request_limits import RefusedRequest
from ragqa.serve.routes.common import WorkOfApp, place_to_row, reply_json
from ragqa.serve.schemas import ChangeReply, DocumentsReply, DocumentTextReply, describe_errors
from ragqa.serve.work import ServedIndex
from ragqa.types import Hit, Passage

MAX_LISTED = 1000
"""Maximum number of documents, or of passages of a document, in a response."""
router = APIRouter(tags=["documents"])
Name = Annotated[str | None, Query(max_length=200, description="Name of an index; by default the first.")]
FirstNumber = Annotated[int | None, Query(ge=0, le=2**40)]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
Path = Annotated[str | None, Query(max_length=10_000, description="Path of the file, if several have the id.")]
Offset = Annotated[int | None, Query(ge=0, le=2**40)]


@router.get("/documents", responses={200: {"model": DocumentsReply}, **describe_errors(400, 401, 404, 503)})
async def list_documents(
    work: WorkOfApp, index: Name = None, first: FirstNumber = None, limit: Limit = 100
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
    work: WorkOfApp,
    id: str,
    index: Name = None,
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
        return {**_to_row(document), "index": served.name, "first": begin, "parts": parts}

    return reply_json(await asyncio.to_thread(read))


_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}


@router.post(
    "/documents",
    responses={200: {"model": ChangeReply}, **describe_errors(400, 401, 403, 404, 413, 503)},
    openapi_extra={"requestBody": _FILE},
)
async def add_document(
    request: Request,
    work: WorkOfApp,
    name: Annotated[str, Query(min_length=1, max_length=200, description="Name of the file, such as report.pdf.")],
    index: Name = None,
) -> Response:
    """Add a file, which is the body of the request, to an index; a file of the same name is replaced."""
    folder = _open_folder(request, work.find_index(index))
    check_file_name(name)
    content = await request.body()
    report = await work.change(lambda: folder.add(name, content))
    return reply_json(_report_to_row(report, str(folder.path / name)))


@router.delete(
    "/documents/{id:path}", responses={200: {"model": ChangeReply}, **describe_errors(400, 401, 403, 404, 409)}
)
async def delete_document(
    request: Request, work: WorkOfApp, id: str, index: Name = None, path: Path = None
) -> Response:
    """Delete a document from an index, and its file if it was added by ``POST /documents``."""
    served = work.find_index(index)
    folder = _open_folder(request, served)
    document = _choose((await asyncio.to_thread(served.read_documents))[1].find(id), path)
    report = await work.change(lambda: folder.delete(document.id, document.path))
    return reply_json(_report_to_row(report, None))


def _open_folder(request: Request, served: ServedIndex) -> UploadFolder:
    """Return the upload folder of an index.

    Raises:
        RefusedRequest: documents cannot be changed.
    """
    if not request.app.state.can_edit:
        raise RefusedRequest(403, "this server does not change documents: start it with --allow-edit")
    if served.path is None:
        raise RefusedRequest(403, f"the index {served.name} is on another server: change it there")
    return UploadFolder(served.path)


def _choose(documents: list[IndexedDocument], path: str | None) -> IndexedDocument:
    """Return the document of an id.

    Raises:
        RefusedRequest: there is none, or several have the id.
    """
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
