"""The passage store returns passages by row and in batches, and names damage."""

import gc
import tracemalloc
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.corpus import store as store_module
from ragqa.corpus.sources import Document
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.errors import ArtefactError, DamagedArtefact
from ragqa.types import Passage
from tests.helpers.tables import move_last_offset


def make_document(number: int, words: int = 3) -> Document:
    text = " ".join(f"w{number}.{word}" for word in range(words))
    return Document(f"d{number}", f"Title {number}", text, f"folder/{number}.txt")


def fill_store(folder: Path, count: int, rows_per_file: int = 50_000) -> PassageStore:
    with PassageWriter(folder, rows_per_file=rows_per_file) as writer:
        for number in range(count):
            text = make_document(number)
            assert writer.add_document(text, [(0, len(text.text))]) == 1
    assert writer.rows == count
    return PassageStore.open(folder)


def test_a_store_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    """Each store maps its files, and the mappings of an index that is often updated would accumulate."""
    gc.collect()
    gc.disable()
    try:
        store = fill_store(tmp_path, 10)
        assert store[3] and list(store.iter_batches()) and store.read_rows(0, 2) and len(store.find_rows(["d1"]))
        freed = weakref.ref(store)
        del store
        assert freed() is None
    finally:
        gc.enable()


def make_passage(row: int) -> Passage:
    text = make_document(row)
    return Passage(row, text.id, text.title, text.text, text.path, 0, len(text.text))


def test_passages_are_read_as_they_were_written(tmp_path: Path) -> None:
    first = Document("x", "Ü", "one two\x00 𝄞 three", "a/b.txt")
    second = Document("y", "", "four", "c.jsonl")
    with PassageWriter(tmp_path / "p") as writer:
        assert writer.add_document(first, [(0, 7), (9, 16)]) == 2
        assert writer.add_document(second, []) == 0
        assert writer.add_document(second, iter([(0, 4)])) == 1
        assert writer.rows == 3
    store = PassageStore.open(tmp_path / "p")
    assert [store[row] for row in range(3)] == [
        Passage(0, "x", "Ü", "one two", "a/b.txt", 0, 7),
        Passage(1, "x", "Ü", "𝄞 three"[:7], "a/b.txt", 9, 16),
        Passage(2, "y", "", "four", "c.jsonl", 0, 4),
    ]
    assert [file.name for file in (tmp_path / "p").iterdir()] == ["00000.arrow"]


def test_files_and_batches_have_the_right_numbers_of_rows(tmp_path: Path) -> None:
    store = fill_store(tmp_path, 5_500, rows_per_file=2_500)
    assert len(store) == 5_500
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["00000.arrow", "00001.arrow", "00002.arrow"]
    sizes = []
    for file in files:
        with pa.memory_map(str(file)) as source:
            reader = pa.ipc.open_file(source)
            sizes.append([reader.get_batch(i).num_rows for i in range(reader.num_record_batches)])
            names = ["document", "title", "path", "start", "end", "text"]
            assert reader.schema.names[:6] == names
            assert reader.schema.field("start").type == reader.schema.field("end").type == pa.int32()
    assert sizes == [[1000, 1000, 500], [1000, 1000, 500], [500]]
    rows = [0, 999, 1000, 2499, 2500, 4999, 5000, 5499]
    assert store.get(rows) == [make_passage(row) for row in rows]


def test_rows_may_be_numpy_integers_in_any_order(tmp_path: Path) -> None:
    store = fill_store(tmp_path, 10, rows_per_file=4)
    rows = np.array([7, 0, 7, 9], dtype=np.int64)
    found = store.get(rows)
    assert found == [make_passage(row) for row in (7, 0, 7, 9)]
    assert type(found[0].id) is int
    assert store.get([]) == []
    assert store.get(range(2, 4)) == [make_passage(2), make_passage(3)]


@pytest.mark.parametrize("row", [-1, 10, 2**40])
def test_rows_out_of_range_are_rejected(tmp_path: Path, row: int) -> None:
    store = fill_store(tmp_path, 10)
    with pytest.raises(IndexError, match=f"no row {row} among 10"):
        store[row]
    with pytest.raises(IndexError):
        store.get([0, row])


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> PassageStore:
    return fill_store(tmp_path_factory.mktemp("passages"), 2_345, rows_per_file=1_100)


@settings(max_examples=30)
@given(first=st.integers(0, 2_400), size=st.integers(1, 2_500))
def test_batches_cover_all_rows_in_order(ragged: PassageStore, first: int, size: int) -> None:
    batches = list(ragged.iter_batches(first, size))
    rows = range(first, 2_345)
    assert [len(batch) for batch in batches] == [len(rows[at : at + size]) for at in range(0, len(rows), size)]
    assert [passage.id for batch in batches for passage in batch] == list(rows)


def test_batches_and_rows_hold_the_same_passages(ragged: PassageStore) -> None:
    assert [p for batch in ragged.iter_batches(size=700) for p in batch] == [make_passage(row) for row in range(2_345)]
    assert list(ragged) == [make_passage(row) for row in range(2_345)]


def test_an_empty_store_has_no_passages(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "p", 0)
    assert len(store) == 0
    assert list(store.iter_batches()) == []
    with pytest.raises(IndexError):
        store[0]


def write_and_fail(folder: Path, count: int) -> None:
    with PassageWriter(folder, rows_per_file=2_000) as writer:
        for number in range(count):
            writer.add_document(make_document(number), [(0, 2)])
        raise RuntimeError(sorted(file.name for file in folder.iterdir()))


def test_a_failed_writer_leaves_whole_files_only(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"\['00000.arrow', '00001.arrow'\]"):
        write_and_fail(tmp_path / "p", 4_500)
    assert sorted(file.name for file in (tmp_path / "p").iterdir()) == ["00000.arrow", "00001.arrow"]
    with pytest.raises(RuntimeError, match=r"\['.00000.arrow.writing'\]"):
        write_and_fail(tmp_path / "q", 1_500)
    assert list((tmp_path / "q").iterdir()) == []


def test_passages_are_never_overwritten(tmp_path: Path) -> None:
    fill_store(tmp_path, 3)
    with pytest.raises(ArtefactError, match="holds passages already"):
        PassageWriter(tmp_path)


def append_documents(folder: Path, numbers: Iterable[int]) -> PassageStore:
    number, _ = PassageStore.open(folder).last_file
    with PassageWriter(folder, rows_per_file=2, first_file=number + 1) as writer:
        for number in numbers:
            writer.add_document(make_document(number), [(0, 2), (3, 5)])
    return PassageStore.open(folder)


def delete_rows(folder: Path, rows: Iterable[int]) -> PassageStore:
    np.save(folder / store_module.DELETED, np.array(sorted(rows), np.int64))
    return PassageStore.open(folder)


def test_passages_are_appended_in_files_of_their_own(tmp_path: Path) -> None:
    before = fill_store(tmp_path, 5, rows_per_file=3)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    store = append_documents(tmp_path, [70, 71])
    assert len(before) == 5 and len(store) == 9
    assert store.get(range(5)) == before.get(range(5))
    assert [(p.id, p.document, p.start) for p in store.get(range(5, 9))] == [
        (5, "d70", 0),
        (6, "d70", 3),
        (7, "d71", 0),
        (8, "d71", 3),
    ]
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"0000{n}.arrow" for n in range(4)]


def test_the_last_file_can_be_replaced(tmp_path: Path) -> None:
    """The new file is another inode, since the old one may be linked from elsewhere."""
    store = fill_store(tmp_path, 5, rows_per_file=3)
    assert store.last_file == (1, 3)
    (tmp_path / "link").hardlink_to(tmp_path / "00001.arrow")
    before = (tmp_path / "link").read_bytes()
    with PassageWriter(tmp_path, first_file=1) as writer:
        for row in (3, 4):
            writer.add_passage(store[row])
        writer.add_document(make_document(5), [(0, len(make_document(5).text))])
    assert (tmp_path / "link").read_bytes() == before
    assert list(PassageStore.open(tmp_path)) == [make_passage(row) for row in range(6)]
    assert store[4] == make_passage(4)
    (tmp_path / "empty").mkdir()
    assert PassageStore.open(tmp_path / "empty").last_file == (-1, 0)


def test_a_failed_append_leaves_the_old_passages(tmp_path: Path) -> None:
    fill_store(tmp_path, 5)
    with pytest.raises(ZeroDivisionError), PassageWriter(tmp_path, first_file=1) as writer:
        writer.add_document(make_document(7), [(0, 2)])
        1 / 0  # noqa: B018
    assert [file.name for file in tmp_path.iterdir()] == ["00000.arrow"]
    assert len(PassageStore.open(tmp_path)) == 5


@given(st.integers(1, 30), st.sets(st.integers(0, 29)))
def test_live_rows_skip_deleted_rows(rows: int, gone: set[int]) -> None:
    deleted = np.array(sorted(row for row in gone if row < rows), np.int64)
    store = PassageStore([store_module._PassageFile(Path(), None, rows, rows)], deleted)
    left = [row for row in range(rows) if row not in gone]
    assert store.get_live_rows(range(store.live_count)).tolist() == left
    if left:
        assert store.get_live_rows(store.live_count - 1) == left[-1]


def test_deleted_rows_keep_their_place_but_are_in_no_batch(tmp_path: Path) -> None:
    fill_store(tmp_path, 10, rows_per_file=4)
    store = delete_rows(tmp_path, [0, 3, 4, 9])
    assert (len(store), store.live_count) == (10, 6)
    assert store.get([1, 4, 9]) == [make_passage(row) for row in (1, 4, 9)]
    assert [p.id for batch in store.iter_batches() for p in batch] == [1, 2, 5, 6, 7, 8]
    assert fill_store(tmp_path / "whole", 3).live_count == 3


@settings(max_examples=30)
@given(
    gone=st.sets(st.integers(2_000, 2_344)) | st.just(set(range(2_345))),
    first=st.integers(2_000, 2_400),
    size=st.sampled_from([1, 50, 5_000]),
)
def test_batches_of_live_passages_are_never_empty(ragged: PassageStore, gone: set[int], first: int, size: int) -> None:
    store = PassageStore(ragged._files, np.array(sorted(gone), np.int64))
    batches = list(store.iter_batches(first, size))
    assert [p.id for batch in batches for p in batch] == [row for row in range(first, 2_345) if row not in gone]
    assert all(0 < len(batch) <= size for batch in batches)


def test_rows_of_documents_skip_deleted_rows(tmp_path: Path) -> None:
    fill_store(tmp_path, 5, rows_per_file=2)
    append_documents(tmp_path, [3, 70])  # row 3 is d3, too; 5 and 6 are, and 7 and 8 are d70
    store = delete_rows(tmp_path, [1, 6])
    assert store.find_rows(["d3"]).tolist() == [3, 5]
    assert store.find_rows(["d70", "d0", "d1"]).tolist() == [0, 7, 8]
    assert store.find_rows(["d1", "nobody", ""]).tolist() == store.find_rows([]).tolist() == []
    assert store.find_rows(["d3"]).dtype == np.int64
    with PassageWriter(tmp_path / "none"):
        pass
    assert PassageStore.open(tmp_path / "none").find_rows(["d1"]).tolist() == []


def test_values_of_deleted_rows_are_not_listed(tmp_path: Path) -> None:
    fill_store(tmp_path, 5, rows_per_file=2)
    assert delete_rows(tmp_path, [1, 2]).list_values("document") == {"d0", "d3", "d4"}


def test_a_copied_passage_is_the_same_in_its_new_row(tmp_path: Path) -> None:
    fill_store(tmp_path / "a", 7)
    store = delete_rows(tmp_path / "a", [0, 2, 6])
    with PassageWriter(tmp_path / "b") as writer:
        for batch in store.iter_batches():
            for passage in batch:
                writer.add_passage(passage)
    assert list(PassageStore.open(tmp_path / "b")) == [
        replace(make_passage(row), id=number) for number, row in enumerate([1, 3, 4, 5])
    ]


WRAPPING = [0, 2**63 - 1, -(2**63), -1, 3]
"""Rows whose differences are all positive in 64 bits."""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *((content, "is damaged") for content in (b"", b"x" * 300, b"\x93NUMPY")),
        *(
            (rows, "is damaged: its rows are not ascending whole numbers")
            for rows in ([0.0, 1.0], [2, 1], [1, 1], [[1]])
        ),
        *((rows, "is damaged: its rows are not ascending") for rows in (np.array([1, 0, 2], np.uint64), WRAPPING)),
        *((rows, "names rows that do not exist") for rows in ([-5, 2], [2, 10**12])),
    ],
)
def test_a_damaged_file_of_deleted_rows_is_reported(tmp_path: Path, content: Any, problem: str) -> None:
    fill_store(tmp_path, 4)
    file = tmp_path / store_module.DELETED
    file.write_bytes(content) if isinstance(content, bytes) else np.save(file, content)
    with pytest.raises(DamagedArtefact, match=rf"deleted\.npy {problem}"):
        PassageStore.open(tmp_path)


def test_the_fingerprint_changes_with_added_and_deleted_passages(tmp_path: Path) -> None:
    prints = [fill_store(tmp_path, 5).compute_fingerprint(), append_documents(tmp_path, [7]).compute_fingerprint()]
    prints += [delete_rows(tmp_path, rows).compute_fingerprint() for rows in ([0], [1], [0, 1])]
    assert len(set(prints)) == 5


def test_very_long_passages_are_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_BATCH_CHARACTERS", 1_000)
    lengths = [400, 400, 400, 2_000, 10, 10]
    ends = list(accumulate(lengths, initial=0))
    text = Document("x", "T", "y" * ends[-1], "x.txt")
    with PassageWriter(tmp_path) as writer:
        writer.add_document(text, pairwise(ends))
    store = PassageStore.open(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert [len(store[row].text) for row in range(6)] == lengths
    assert [p.end - p.start for batch in store.iter_batches() for p in batch] == lengths


# Damage


def damaged(tmp_path: Path) -> Iterator[tuple[Path, bytes]]:
    file = tmp_path / "00001.arrow"
    whole = file.read_bytes()
    yield file, b""
    yield file, whole[:-1]
    yield file, whole[: len(whole) // 2]
    yield file, whole[: len(whole) // 2] + whole[-700:]
    yield file, b"x" * len(whole)


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    fill_store(tmp_path, 5_000, rows_per_file=2_000)
    for file, content in damaged(tmp_path):
        file.unlink()
        file.write_bytes(content)
        with pytest.raises(DamagedArtefact, match=r"00001\.arrow is not whole"):
            PassageStore.open(tmp_path)


def test_missing_files_and_other_columns_are_reported(tmp_path: Path) -> None:
    fill_store(tmp_path, 5_000, rows_per_file=2_000)
    (tmp_path / "00001.arrow").unlink()
    with pytest.raises(DamagedArtefact, match=r"00001\.arrow is missing"):
        PassageStore.open(tmp_path)
    batch = pa.record_batch({"text": ["a"]})
    with pa.ipc.new_file(str(tmp_path / "00001.arrow"), batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DamagedArtefact, match=r"00001\.arrow does not have the columns"):
        PassageStore.open(tmp_path)
    with pytest.raises(ArtefactError, match="nowhere is not a folder of passages"):
        PassageStore.open(tmp_path / "nowhere")


@pytest.mark.parametrize("end", [200_000, 2_000_000_000, -1, 3])
def test_an_offset_outside_the_data_is_reported_and_not_followed(tmp_path: Path, end: int) -> None:
    fill_store(tmp_path, 3)
    move_last_offset(tmp_path / "00000.arrow", [make_passage(row).text for row in range(3)], end)
    store = PassageStore.open(tmp_path)
    for read in (lambda: store[0], lambda: list(store.iter_batches()), lambda: store.find_rows(["d1"])):
        with pytest.raises(DamagedArtefact, match=r"00000\.arrow is damaged \(Offset invariant failure"):
            read()


@pytest.mark.parametrize(
    ("batches", "what"),
    [
        ([2, 2, 0], "is not whole"),
        ([2, 3], "is not whole"),
        ([2, 1, 2], "is damaged .its batch 1 has 1 rows, not 2"),
    ],
)
def test_batches_of_other_sizes_are_reported(tmp_path: Path, batches: list[int], what: str) -> None:
    fill_store(tmp_path / "whole", 3)
    with pa.OSFile(str(tmp_path / "whole" / "00000.arrow")) as source:
        rows = pa.ipc.open_file(source).read_all().combine_chunks().to_batches()[0]
    with pa.ipc.new_file(str(tmp_path / "00000.arrow"), rows.schema) as writer:
        for size in batches:
            writer.write_batch(rows.slice(0, size))
    with pytest.raises(DamagedArtefact, match=rf"00000\.arrow {what}"):
        list(PassageStore.open(tmp_path).iter_batches())


def test_missing_fields_and_texts_that_are_not_utf_8_are_reported(tmp_path: Path) -> None:
    fill_store(tmp_path, 3)
    file = tmp_path / "00000.arrow"
    with pa.OSFile(str(file)) as source:
        rows = pa.ipc.open_file(source).read_all()
    missing = rows.set_column(0, store_module.SCHEMA.field(0), pa.array(["d0", None, "d2"]))
    for content, what in [(missing, "a field is missing"), (rows, "a text is not UTF-8")]:
        file.unlink()
        with pa.ipc.new_file(str(file), rows.schema) as writer:
            writer.write_table(content)
        file.write_bytes(file.read_bytes().replace(b"w0.1", b"w0.\xe9"))
        with pytest.raises(DamagedArtefact, match=what):
            PassageStore.open(tmp_path)[0]


# Contents and cost


def test_the_fingerprint_depends_on_the_contents_only(tmp_path: Path) -> None:
    one, same = fill_store(tmp_path / "a", 3_000, 2_000), fill_store(tmp_path / "b", 3_000, 2_000)
    assert one.compute_fingerprint() == same.compute_fingerprint()
    assert len(one.compute_fingerprint()) == 64
    assert fill_store(tmp_path / "c", 2_999, 2_000).compute_fingerprint() != one.compute_fingerprint()
    with PassageWriter(tmp_path / "d", rows_per_file=2_000) as writer:
        for number in range(3_000):
            text = make_document(number if number != 1_234 else 0)
            writer.add_document(text, [(0, len(text.text))])
    assert PassageStore.open(tmp_path / "d").compute_fingerprint() != one.compute_fingerprint()


def test_opening_and_streaming_take_little_memory(tmp_path: Path) -> None:
    with PassageWriter(tmp_path, rows_per_file=5_000) as writer:
        long = make_document(1, 200)
        writer.add_document(long, [(0, len(long.text))] * 10_000)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size > 10_000_000
    allocated = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        store = PassageStore.open(tmp_path)
        store.get(range(0, 10_000, 500))
        for _ in store.iter_batches():
            pass
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - allocated < 1_000_000
