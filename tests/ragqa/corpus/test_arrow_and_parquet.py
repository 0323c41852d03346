"""Tables as documents: Arrow and Parquet files, saved data sets, damaged tables, memory."""

import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragqa.corpus.sources import CorpusReport, Document, count_input_bytes, read_documents
from ragqa.errors import BadInput, BadLine
from tests.helpers.documents import read
from tests.helpers.tables import (
    WIKI_DPR,
    WIKIPEDIA,
    Columns,
    move_last_offset,
    save_dataset,
    write_arrow_file,
    write_arrow_stream,
    write_parquet,
)

WRITERS = [("a.arrow", write_arrow_stream), ("b.arrow", write_arrow_file), ("c.parquet", write_parquet)]
each_format = pytest.mark.parametrize(("name", "write"), WRITERS, ids=["stream", "file", "parquet"])


# Columns


@each_format
def test_tables_of_wikipedia_are_read(tmp_path: Path, name: str, write: Any) -> None:
    path = write(tmp_path / name, WIKIPEDIA)
    documents, report = read(path)
    assert documents == [
        Document("12", "Anarchism", "Anarchism is a philosophy.", str(path)),
        Document("39", "東京", "東京は首都。", str(path)),
    ]
    assert report == CorpusReport(documents=2, bytes_read=path.stat().st_size)


@each_format
def test_tables_of_wiki_dpr_are_read(tmp_path: Path, name: str, write: Any) -> None:
    path = write(tmp_path / name, WIKI_DPR)
    assert read(path)[0] == [
        Document("1", "Aaron", "Aaron is a prophet.", str(path)),
        Document("2", "Aaron", "He had a brother.", str(path)),
    ]


@each_format
def test_rows_without_ids_are_numbered_and_titles_are_optional(tmp_path: Path, name: str, write: Any) -> None:
    path = write(tmp_path / name, {"text": ["one", "two"]})
    assert read(path)[0] == [
        Document(f"{path}:1", "", "one", str(path)),
        Document(f"{path}:2", "", "two", str(path)),
    ]
    path = write(tmp_path / name, {"text": ["one", "two"], "title": ["A", None], "id": [7, 8]})
    assert read(path)[0] == [Document("7", "A", "one", str(path)), Document("8", "", "two", str(path))]


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string())]
)
def test_all_string_types_of_arrow_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    columns = {"text": pa.array(["one", "two"]).cast(kind), "title": pa.nulls(2)}
    assert [d.text for d in read(write_arrow_stream(tmp_path / "a.arrow", columns))[0]] == ["one", "two"]


@each_format
@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"id": ["1"], "contents": ["one"]}, "no column 'text', only 'id', 'contents' (fix it"),
        ({"text": [["one"]], "id": ["1"]}, "the column 'text' holds list<"),
        ({"text": ["one"], "title": [1]}, "the column 'title' holds int64, not strings (fix it"),
        ({"text": ["one"], "id": [0.5]}, "the column 'id' holds double, not strings (fix it"),
        ({f"c{n:02}": ["x"] for n in range(30)}, "no column 'text', only 'c00', "),
    ],
)
def test_a_table_without_the_columns_is_a_one_line_error(
    tmp_path: Path, name: str, write: Any, columns: Columns, what: str
) -> None:
    path = write(tmp_path / name, columns)
    with pytest.raises(BadInput) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {what}")
    assert len(str(error.value)) < len(str(path)) + 300
    assert read(path, strict=False)[1].bad == 1


@each_format
def test_rows_without_text_or_id_are_bad_records(tmp_path: Path, name: str, write: Any) -> None:
    columns = {"id": ["1", None, "3", ""], "text": ["one", "two", None, "four"]}
    path = write(tmp_path / name, columns)
    with pytest.raises(BadLine, match=rf"{name}:2: a row without an id"):
        read(path)
    documents, report = read(path, strict=False)
    assert ([d.id for d in documents], report.bad) == (["1"], 3)
    assert report.notes[1] == f"{path}:3: a row without a text"


def test_bytes_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    offsets, data = pa.py_buffer(b"\0\0\0\0\3\0\0\0\7\0\0\0"), pa.py_buffer(b"onecaf\xe9")
    texts = pa.StringArray.from_buffers(2, offsets, data)
    path = write_arrow_stream(tmp_path / "a.arrow", {"id": [1, 2], "text": texts})
    documents, report = read(path)
    assert [d.text for d in documents] == ["one", "caf\ufffd"]
    assert (report.undecodable, report.notes[0].partition(": ")[0]) == (1, f"{path}:2")


# Folders


def test_only_the_data_files_of_a_saved_data_set_are_read(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", {"text": ["one"]}, {"text": ["two"]})
    write_arrow_stream(folder / "cache-0123456789abcdef.arrow", {"text": ["not this"]})
    documents, report = read(folder)
    assert [d.text for d in documents] == ["one", "two"]
    assert report == CorpusReport(documents=2, bytes_read=count_input_bytes([folder]))
    save_dataset(tmp_path / "splits" / "test", {"text": ["test"]})
    save_dataset(tmp_path / "splits" / "train", {"text": ["train"]})
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    documents, report = read(tmp_path / "splits")
    assert ([d.text for d in documents], report.left_out) == (["test", "train"], {})


def test_a_missing_file_of_a_saved_data_set_is_reported(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", {"text": ["one"]}, {"text": ["two"]})
    gone = folder / "data-00001-of-00002.arrow"
    gone.unlink()
    with pytest.raises(BadInput, match=rf"{gone}: cannot be read: No such file"):
        read(folder)
    documents, report = read(folder, strict=False)
    assert ([d.text for d in documents], report.bad) == (["one"], 1)


@pytest.mark.parametrize(
    "state", ["{", "[]", "{}", '{"_data_files": 3}', '{"_data_files": [{}]}', '{"_data_files": ["a"]}']
)
def test_a_state_file_of_something_else_is_ignored(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    (tmp_path / "a.txt").write_text("Text.")
    assert read(tmp_path)[0][0].text == "Text."


def test_a_saved_data_set_cannot_name_files_outside_its_folder(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", {"text": ["one"]})
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../secret.txt"}]}')
    with pytest.raises(BadInput, match="No such file"):
        read(folder)


def test_a_folder_of_parquet_files_is_read_in_their_order(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00001-of-00002.parquet", {"text": ["three"]})
    write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet", {"text": ["one", "two"]}, row_group_size=1)
    documents, _ = read(tmp_path)
    assert [(Path(d.path).name[6:11], d.id[-2:], d.text) for d in documents] == [
        ("00000", ":1", "one"),
        ("00000", ":2", "two"),
        ("00001", ":1", "three"),
    ]


# Damaged tables


@each_format
def test_a_truncated_table_is_reported(tmp_path: Path, name: str, write: Any) -> None:
    path = write(tmp_path / name, {"id": [str(n) for n in range(9999)], "text": [f"text {n}" for n in range(9999)]})
    path.write_bytes(path.read_bytes()[:-30_000])
    with pytest.raises(BadInput, match=rf"{name}(:\d+)?: cannot be read( further)?: \w+"):
        read(path)
    assert read(path, strict=False)[1].bad == 1


def test_the_row_where_a_stream_breaks_is_reported(tmp_path: Path) -> None:
    columns = {"id": [str(n) for n in range(3000)], "text": [f"text {n}" for n in range(3000)]}
    path = write_arrow_stream(tmp_path / "a.arrow", columns)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(BadLine, match=r"a\.arrow:2000: cannot be read further: Expected to be able to read \d+ bytes"):
        read(path)
    assert len(read(path, strict=False)[0]) == 2000


@pytest.mark.parametrize("name", ["a.arrow", "a.parquet"])
@pytest.mark.parametrize(
    "content", [b"", b"text", b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"{}" * 99]
)
def test_a_file_that_is_no_table_is_reported(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=rf"{name}: (cannot be read: \w+|no column 'text', only no columns)"):
        read(tmp_path)
    documents, report = read(tmp_path, strict=False)
    assert (documents, report.bad) == ([], 1)


def test_arrow_but_not_parquet_is_read_from_archives(tmp_path: Path) -> None:
    write_arrow_stream(tmp_path / "a.arrow", WIKIPEDIA)
    write_parquet(tmp_path / "b.parquet", WIKIPEDIA)
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for name in ("a.arrow", "b.parquet"):
            archive.add(tmp_path / name, name)
    documents, report = read(tmp_path / "all.tar", strict=False)
    assert [d.id for d in documents] == ["12", "39"]
    assert report.notes == [
        f"{tmp_path}/all.tar/b.parquet: cannot be read: it is compressed or in an archive: unpack it first"
    ]


# Hostile tables


@pytest.mark.parametrize("end", [200_000, 2_000_000_000, -1, 3])
@pytest.mark.parametrize("write", [write_arrow_stream, write_arrow_file], ids=["stream", "file"])
def test_an_offset_outside_the_data_is_reported_and_not_followed(tmp_path: Path, write: Any, end: int) -> None:
    texts = ["hello", "my own world"]
    path = write(tmp_path / "a.arrow", {"id": [1, 2], "text": texts})
    assert [d.text for d in read(path)[0]] == texts
    move_last_offset(path, texts, end)
    with pytest.raises(BadInput, match=r"a\.arrow: cannot be read: Offset invariant failure"):
        read(path)
    write_arrow_stream(tmp_path / "b.arrow", {"text": ["the next"]})
    documents, report = read(tmp_path, strict=False)
    assert ([d.text for d in documents], report.bad) == (["the next"], 1)


def test_an_index_outside_a_dictionary_is_reported(tmp_path: Path) -> None:
    codes, words = pa.array([0, 77], pa.int32()), pa.array(["a", "b"])
    columns = {"text": pa.DictionaryArray.from_arrays(codes, words, safe=False)}
    path = write_arrow_stream(tmp_path / "a.arrow", columns)
    with pytest.raises(BadInput, match=r"a\.arrow: cannot be read: Index 77 out of bounds"):
        read(path)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_a_column_that_comes_twice_is_reported(tmp_path: Path, suffix: str) -> None:
    columns = pa.table([["1"], ["one"], ["two"]], names=["id", "text", "text"])
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(columns, path)
    else:
        with pa.ipc.new_stream(str(path), columns.schema) as writer:
            writer.write_table(columns)
    with pytest.raises(BadInput, match=rf"a\.{suffix}: several columns 'text'"):
        read(path)


def test_a_name_of_a_column_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    path = write_arrow_stream(tmp_path / "a.arrow", {"id": ["1"], "text": ["one"], "caf_": ["two"]})
    path.write_bytes(path.read_bytes().replace(b"caf_", b"caf\xe9"))
    with pytest.raises(BadInput, match=r"a\.arrow: cannot be read: 'utf-8' codec can't decode"):
        read(path)


def test_rows_share_the_strings_of_a_dictionary(tmp_path: Path) -> None:
    rows, length = 90, 1_000_000
    codes = pa.array([0] * rows, pa.int32())
    columns = {
        "id": list(range(rows)),
        "title": pa.DictionaryArray.from_arrays(codes, pa.array(["x" * length])),
        "text": [str(row) for row in range(rows)],
    }
    path = write_arrow_stream(tmp_path / "a.arrow", columns, rows=rows)
    tracemalloc.start()
    try:
        assert all(len(document.title) == 1_000 for document in read_documents([path]))
        assert tracemalloc.get_traced_memory()[1] < 20 * length  # 90 copies would take 90 MB
    finally:
        tracemalloc.stop()


# Memory


def measure_peak_memory(path: Path) -> int:
    """Return the peak memory in bytes of reading, including Arrow's."""
    before = pa.total_allocated_bytes()
    highest = 0
    tracemalloc.start()
    try:
        for document in read_documents([path]):
            assert len(document.text) == 10_000
            highest = max(highest, pa.total_allocated_bytes() - before)
        return highest + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def make_long_texts(rows: int) -> Columns:
    texts = [f"{n:05} ".ljust(10_000, "abcdefgh "[n % 9]) for n in range(rows)]
    return {"id": list(range(rows)), "text": texts, "embeddings": [[0.5] * 768] * rows}


@pytest.mark.parametrize("write", [write_arrow_stream, write_parquet], ids=["stream", "parquet"])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, write: Any) -> None:
    suffix = "arrow" if write is write_arrow_stream else "parquet"
    # one row group: what a writer that was not asked makes of 6,000 rows
    options = {"rows": 250} if write is write_arrow_stream else {"row_group_size": 1_000_000, "compression": "none"}
    few = measure_peak_memory(write(tmp_path / f"few.{suffix}", make_long_texts(1500), **options))
    many = measure_peak_memory(write(tmp_path / f"many.{suffix}", make_long_texts(6000), **options))
    assert (tmp_path / f"many.{suffix}").stat().st_size > 60_000_000
    assert many < 1.2 * few + 1_000_000
    assert many < 40_000_000
