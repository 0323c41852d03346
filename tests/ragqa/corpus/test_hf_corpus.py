"""Tables as documents: Arrow and Parquet files by hand, what ``datasets`` saves and loads, what is broken, memory."""

import json
import sys
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import run

from ragqa import artefacts
from ragqa.corpus import hub
from ragqa.corpus.formats import tables
from ragqa.corpus.sources import CorpusReport, Document, count_input_bytes, read_documents
from ragqa.errors import BadInput, BadLine, MissingExtra
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline

Columns = dict[str, Any]

WIKIPEDIA: Columns = {
    "id": ["12", "39"],
    "url": ["https://a.org/12", "https://a.org/39"],
    "title": ["Anarchism", "東京"],
    "text": ["Anarchism is a philosophy.", "東京は首都。"],
}
WIKI_DPR: Columns = {
    "id": ["1", "2"],
    "text": ["Aaron is a prophet.", "He had a brother."],
    "title": ["Aaron", "Aaron"],
    "embeddings": [[0.5] * 768, [0.25] * 768],
}


def read(*paths: Path, skip_bad: bool = False) -> tuple[list[Document], CorpusReport]:
    report = CorpusReport()
    documents = list(read_documents(paths, skip_bad=skip_bad, report=report))
    assert report.documents == len(documents)
    return documents, report


def write_arrow_stream(path: Path, columns: Columns, *, rows: int = 1000) -> Path:
    """Write Arrow's stream format, as Dataset.save_to_disk does."""
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as write_arrow_file, pa.ipc.new_stream(write_arrow_file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_arrow_file(path: Path, columns: Columns) -> Path:
    """Write Arrow's file format."""
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as target, pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)
    return path


def write_parquet(path: Path, columns: Columns, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


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
    assert read(path, skip_bad=True)[1].bad == 1


@each_format
def test_rows_without_text_or_id_are_bad_records(tmp_path: Path, name: str, write: Any) -> None:
    columns = {"id": ["1", None, "3", ""], "text": ["one", "two", None, "four"]}
    path = write(tmp_path / name, columns)
    with pytest.raises(BadLine, match=rf"{name}:2: a row without an id"):
        read(path)
    documents, report = read(path, skip_bad=True)
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


def save_dataset(folder: Path, *parts: Columns) -> Path:
    """Write a folder as Dataset.save_to_disk does."""
    folder.mkdir(parents=True)
    names = [f"data-{n:05}-of-{len(parts):05}.arrow" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        write_arrow_stream(folder / name, part)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


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
    assert ([d.text for d in documents], report.binary) == (["test", "train"], 0)


def test_a_missing_file_of_a_saved_data_set_is_reported(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", {"text": ["one"]}, {"text": ["two"]})
    gone = folder / "data-00001-of-00002.arrow"
    gone.unlink()
    with pytest.raises(BadInput, match=rf"{gone}: cannot be read: No such file"):
        read(folder)
    documents, report = read(folder, skip_bad=True)
    assert ([d.text for d in documents], report.bad) == (["one"], 1)


@pytest.mark.parametrize(
    "state", ["{", "[]", "{}", '{"_data_files": 3}', '{"_data_files": [{}]}', '{"_data_files": ["a"]}']
)
def test_a_state_file_of_something_else_is_ignored(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    (tmp_path / "a.txt").write_text("Text.")
    assert [d.text for d in read(tmp_path)[0]] == ["Text."]


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


# What is broken


@each_format
def test_a_truncated_table_is_reported(tmp_path: Path, name: str, write: Any) -> None:
    path = write(tmp_path / name, {"id": [str(n) for n in range(9999)], "text": [f"text {n}" for n in range(9999)]})
    path.write_bytes(path.read_bytes()[:-30_000])
    with pytest.raises(BadInput, match=rf"{name}(:\d+)?: cannot be read( further)?: \w+"):
        read(path)
    assert read(path, skip_bad=True)[1].bad == 1


def test_the_row_where_a_stream_breaks_is_reported(tmp_path: Path) -> None:
    columns = {"id": [str(n) for n in range(3000)], "text": [f"text {n}" for n in range(3000)]}
    path = write_arrow_stream(tmp_path / "a.arrow", columns)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(BadLine, match=r"a\.arrow:2000: cannot be read further: Expected to be able to read \d+ bytes"):
        read(path)
    assert len(read(path, skip_bad=True)[0]) == 2000


@pytest.mark.parametrize("name", ["a.arrow", "a.parquet"])
@pytest.mark.parametrize(
    "content", [b"", b"text", b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"{}" * 99]
)
def test_a_file_that_is_no_table_is_reported(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=rf"{name}: (cannot be read: \w+|no column 'text', only no columns)"):
        read(tmp_path)
    documents, report = read(tmp_path, skip_bad=True)
    assert (documents, report.bad) == ([], 1)


def test_arrow_but_not_parquet_is_read_from_archives(tmp_path: Path) -> None:
    write_arrow_stream(tmp_path / "a.arrow", WIKIPEDIA)
    write_parquet(tmp_path / "b.parquet", WIKIPEDIA)
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for name in ("a.arrow", "b.parquet"):
            archive.add(tmp_path / name, name)
    documents, report = read(tmp_path / "all.tar", skip_bad=True)
    assert [d.id for d in documents] == ["12", "39"]
    assert report.notes == [
        f"{tmp_path}/all.tar/b.parquet: cannot be read: it is compressed or in an archive: unpack it first"
    ]


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


# Names on the hub


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("hf:squad", ("squad", None, None, None)),
        ("hf:squad:train", ("squad", None, None, "train")),
        ("hf:wikimedia/wikipedia", ("wikimedia/wikipedia", None, None, None)),
        ("hf:wikimedia/wikipedia/20231101.en", ("wikimedia/wikipedia", None, "20231101.en", None)),
        ("hf:wikimedia/wikipedia/20231101.en:train", ("wikimedia/wikipedia", None, "20231101.en", "train")),
        ("hf:a/b@main/c:train", ("a/b", "main", "c", "train")),
        ("hf:a@1.0/c", ("a", "1.0", "c", None)),
        ("hf:a/b@refs/convert/parquet/c:test", ("a/b", "refs/convert/parquet", "c", "test")),
        ("hf:a/b@refs/pr/1", ("a/b", "refs/pr/1", None, None)),
        ("hf:/data/wiki:train", ("/data/wiki", None, None, "train")),
        ("hf:../data/wiki@x", ("../data/wiki", "x", None, None)),
    ],
)
def test_names_of_the_hub_are_parsed(name: str, parsed: tuple[str | None, ...]) -> None:
    assert hub.is_hub_name(Path(name))
    found = hub.parse_name(Path(name))
    assert (found.name, found.revision, found.config, found.split) == parsed


@pytest.mark.parametrize("name", ["hf:", "hf:a b", "hf:a/b/c/d", "hf:a@", "hf:a:", "hf:@main", "hf:a@b@c"])
def test_malformed_names_of_the_hub_are_rejected(name: str) -> None:
    with pytest.raises(BadInput, match=r"is not the name of a data set: hf:NAME\[@REVISION\]"):
        read(Path(name))


def test_the_error_without_datasets_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"reading hf:a/b:train needs the extra 'torch'"):
        read(Path("hf:a/b:train"))
    report = read(Path("hf:a/b:train"), skip_bad=True)[1]
    assert (report.bad, "needs the extra 'torch'" in report.notes[0]) == (1, True)


# Through datasets


@pytest.fixture
def datasets() -> Iterator[Any]:
    module = pytest.importorskip("datasets", reason="needs the extra torch")
    module.disable_progress_bars()
    yield module
    module.enable_progress_bars()


def test_a_saved_data_set_is_read_as_datasets_reads_it(tmp_path: Path, datasets: Any) -> None:
    rows = {"id": [str(n) for n in range(2500)], "title": ["T"] * 2500, "text": [f"text {n}" for n in range(2500)]}
    whole = datasets.Dataset.from_dict(rows)
    whole.save_to_disk(tmp_path / "saved", num_shards=3)
    loaded = datasets.load_from_disk(tmp_path / "saved")
    loaded.map(lambda row: {"text": row["text"] + " mapped"})  # leaves a cache beside the data
    assert any(path.name.startswith("cache-") for path in (tmp_path / "saved").iterdir())
    assert [(d.id, d.title, d.text) for d in read(tmp_path / "saved")[0]] == [
        (row["id"], row["title"], row["text"]) for row in loaded
    ]
    whole.select([7, 3]).save_to_disk(tmp_path / "chosen")
    assert [d.id for d in read(tmp_path / "chosen")[0]] == ["7", "3"]
    datasets.DatasetDict(train=whole.select([1]), test=whole.select([2])).save_to_disk(tmp_path / "splits")
    documents, report = read(tmp_path / "splits")
    assert ([d.id for d in documents], report.binary) == (["2", "1"], 0)


@pytest.fixture
def hub_folder(tmp_path: Path, datasets: Any) -> Path:
    """Return a folder with the layout of the hub: two configurations, one with two splits, in Parquet."""
    folder = tmp_path / "wiki"
    for name, columns in {
        "20231101.en/train-00000-of-00002": WIKIPEDIA,
        "20231101.en/train-00001-of-00002": {**WIKIPEDIA, "id": ["40", "41"], "text": ["three", "four"]},
    }.items():
        write_parquet(folder / f"{name}.parquet", columns)
    (folder / "README.md").write_text("---\nlicense: cc-by-sa-3.0\n---\nA card.\n")
    return folder


def test_a_data_set_of_the_hub_is_read_in_order(hub_folder: Path) -> None:
    name = Path(f"hf:{hub_folder}:train")
    documents, report = read(name)
    assert [(d.id, d.title, d.path) for d in documents] == [
        ("12", "Anarchism", str(name)),
        ("39", "東京", str(name)),
        ("40", "Anarchism", str(name)),
        ("41", "東京", str(name)),
    ]
    assert report == CorpusReport(documents=4, bytes_read=sum(len(d.text) for d in documents))
    assert read(Path(f"hf:{hub_folder}"))[0][3].id == "41"  # its only split


def test_one_of_several_splits_must_be_named(hub_folder: Path) -> None:
    write_parquet(hub_folder / "20231101.en" / "test-00000-of-00001.parquet", {**WIKIPEDIA, "id": ["1", "2"]})
    with pytest.raises(BadInput, match=rf"choose one of its splits \(train, test\), as in hf:{hub_folder}:train"):
        read(Path(f"hf:{hub_folder}"))
    assert [d.id for d in read(Path(f"hf:{hub_folder}:test"))[0]] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("hf:{}:nope", "Bad split: nope. Available splits: ['train']"),
        ("hf:{}/nowhere", "Couldn't find any data file at"),
        ("hf:ragqa/no-such-data-set:train", "Couldn't reach 'ragqa/no-such-data-set' on the Hub"),
    ],
)
def test_a_data_set_that_cannot_be_loaded_is_a_one_line_error(hub_folder: Path, name: str, what: str) -> None:
    path = Path(name.format(hub_folder))
    with pytest.raises(BadInput) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: cannot be read: {what}")
    assert "\n" not in str(error.value)
    assert read(path, skip_bad=True)[1].bad == 1


def test_a_data_set_without_texts_or_rows_is_a_one_line_error(tmp_path: Path, datasets: Any) -> None:
    write_parquet(tmp_path / "a" / "train.parquet", {"question": ["x"]})
    with pytest.raises(BadInput, match=r"hf:.*/a: no column 'text', only 'question' \(fix it"):
        read(Path(f"hf:{tmp_path}/a"))
    write_parquet(tmp_path / "b" / "train.parquet", {"text": pa.array([], pa.string())})
    with pytest.raises(BadInput, match=r"hf:.*/b: cannot be read: \w+"):
        read(Path(f"hf:{tmp_path}/b"))


def test_the_row_where_a_data_set_breaks_off_is_reported(
    tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)
    write_parquet(tmp_path / "a" / "train-00000-of-00002.parquet", WIKIPEDIA)
    broken = write_parquet(tmp_path / "a" / "train-00001-of-00002.parquet", WIKI_DPR)
    broken.write_bytes(b"PAR1 and nothing else")
    documents, report = read(Path(f"hf:{tmp_path}/a"), skip_bad=True)
    assert ([d.id for d in documents], report.bad) == (["12", "39"], 1)
    assert ":2: cannot be read further: " in report.notes[0]


# From the data set to an answer

TITLES = ["Skarvik Lighthouse", "Comet Varga"]
TEXTS = ["Skarvik Lighthouse was built in 1871 by the engineer Ada Holm.", "Comet Varga was discovered by Ilona Varga."]


def test_an_index_of_a_saved_data_set_answers_questions(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", {"title": TITLES, "text": TEXTS})
    report = build_index([folder], tmp_path / "out", IndexConfig(retriever="bm25"))
    assert (report.documents, report.binary) == (2, 0)
    answer = Pipeline.load(tmp_path / "out").ask("Who built Skarvik Lighthouse?")
    assert answer.text is not None and "Ada Holm" in answer.text
    hit = answer.sources[0].hit.passage
    data = str(folder / "data-00000-of-00001.arrow")
    assert (hit.document, hit.title, hit.path) == (f"{data}:1", TITLES[0], data)


def test_an_index_of_a_data_set_of_the_hub_answers_questions(
    tmp_path: Path, datasets: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "wiki" / "train.parquet", {"title": TITLES, "text": TEXTS})
    write_parquet(tmp_path / "other" / "train.parquet", {"title": TITLES[:1], "text": TEXTS[:1]})
    monkeypatch.chdir(tmp_path)
    index = tmp_path / "wiki.index"
    arguments = ("--out", str(index), "--retriever", "bm25")
    status, out, err = run("index", "hf:./wiki:train", *arguments, capsys=capsys)
    assert (status, out[:23]) == (0, "2 documents, 2 passages"), err
    hit = Pipeline.load(index).ask("Who built Skarvik Lighthouse?").sources[0].hit.passage
    assert hit.path == f"hf:{tmp_path}/wiki:train"
    status, _, err = run("index", "hf:./nowhere:train", *arguments, capsys=capsys)
    assert status == 2 and err.startswith(f"ragqa: hf:{tmp_path}/nowhere:train: cannot be read: ")


def test_rows_without_ids_are_added_next_to_those_of_another_table(tmp_path: Path) -> None:
    one = write_parquet(tmp_path / "one.parquet", {"title": TITLES, "text": TEXTS})
    two = write_parquet(tmp_path / "two.parquet", {"text": ["A third text."]})
    build_index([one], tmp_path / "out", IndexConfig(retriever="bm25"))
    report = update_index(tmp_path / "out", add=[two])
    assert (report.added, report.replaced, report.deleted, report.passages) == (1, 0, 0, 3)
    assert update_index(tmp_path / "out", delete=[f"{one}:2"]).passages == 2


def test_a_data_set_of_the_hub_is_added(hub_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index(
        [write_parquet(tmp_path / "one.parquet", {"text": TEXTS})], tmp_path / "out", IndexConfig(retriever="bm25")
    )
    monkeypatch.chdir(hub_folder.parent)
    assert update_index(tmp_path / "out", add=["hf:./wiki:train"]).added == 4
    assert update_index(tmp_path / "out", add=[f"hf:{hub_folder}:train"]).unchanged == 4


def test_a_build_of_another_data_set_starts_anew(
    tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed is not continued with the passages of another data set."""

    def killed(*arguments: Path) -> None:
        raise KeyboardInterrupt

    write_parquet(tmp_path / "wiki" / "train.parquet", {"title": TITLES, "text": TEXTS})
    write_parquet(tmp_path / "other" / "train.parquet", {"title": TITLES[:1], "text": TEXTS[:1]})
    out, config = tmp_path / "out", IndexConfig(retriever="bm25")
    with monkeypatch.context() as patched:
        patched.setattr(artefacts.atomic, "swap_into_place", killed)
        with pytest.raises(KeyboardInterrupt):
            build_index([Path(f"hf:{tmp_path}/wiki")], out, config)
    assert (tmp_path / ".out.building" / "made" / "passages").is_dir()
    assert build_index([Path(f"hf:{tmp_path}/other")], out, config).documents == 1
