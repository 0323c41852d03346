"""Data sets of the hub as documents: their names, reading, and an index of them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import run

from ragqa import artefacts
from ragqa.corpus import hub
from ragqa.corpus.formats.tables import arrow
from ragqa.corpus.sources import CorpusReport
from ragqa.errors import BadInput, MissingExtra
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline
from tests.helpers.documents import read, write
from tests.helpers.tables import WIKI_DPR, WIKIPEDIA, save_dataset, write_parquet

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
    report = read(Path("hf:a/b:train"), strict=False)[1]
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
    assert ([d.id for d in documents], report.left_out) == (["2", "1"], {})


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
        ("hf:ragqa/no-such-data-set:train", "its name is looked up at the Hugging Face hub, which cannot be"),
    ],
)
def test_a_data_set_that_cannot_be_loaded_is_a_one_line_error(hub_folder: Path, name: str, what: str) -> None:
    path = Path(name.format(hub_folder))
    with pytest.raises(BadInput) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: cannot be read: {what}")
    assert "\n" not in str(error.value)
    assert read(path, strict=False)[1].bad == 1


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
    monkeypatch.setattr(arrow, "BATCH_ROWS", 2)
    write_parquet(tmp_path / "a" / "train-00000-of-00002.parquet", WIKIPEDIA)
    broken = write_parquet(tmp_path / "a" / "train-00001-of-00002.parquet", WIKI_DPR)
    broken.write_bytes(b"PAR1 and nothing else")
    documents, report = read(Path(f"hf:{tmp_path}/a"), strict=False)
    assert ([d.id for d in documents], report.bad) == (["12", "39"], 1)
    assert ":2: cannot be read further: " in report.notes[0]


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "files",
    [
        '"../secret/*.jsonl"',
        '"{}/secret/s.jsonl"',
        '["p.jsonl", "x/../../secret/s.jsonl"]',
        '[{{split: train, path: ["../secret/s.jsonl"]}}]',
        '"https://example.org/s.jsonl"',
        '"~/secret/s.jsonl"',
    ],
)
def test_the_card_of_a_folder_cannot_name_data_outside(tmp_path: Path, datasets: Any, card: str, files: str) -> None:
    write(tmp_path / "secret" / "s.jsonl", '{"text": "secret"}\n')
    write(tmp_path / "dir" / "p.jsonl", '{"text": "public"}\n')
    yaml = f"configs:\n- config_name: default\n  data_files: {files.format(tmp_path)}\n"
    write(tmp_path / "dir" / card, yaml if card.endswith("yaml") else f"---\n{yaml}---\nA card.\n")
    with pytest.raises(BadInput, match=rf"{card} names data outside of the folder"):
        read(Path(f"hf:{tmp_path}/dir"))


def test_the_card_of_a_folder_can_name_its_own_files(tmp_path: Path, datasets: Any) -> None:
    write(tmp_path / "dir" / "a..b" / "p.jsonl", '{"text": "public"}\n')
    write(tmp_path / "dir" / "q.jsonl", '{"text": "other"}\n')
    card = "---\nsource: https://example.org\nconfigs:\n- config_name: default\n  data_files: a..b/*.jsonl\n---\n"
    write(tmp_path / "dir" / "README.md", card)
    assert [d.text for d in read(Path(f"hf:{tmp_path}/dir"))[0]] == ["public"]


# From the data set to an answer

TITLES = ["Skarvik Lighthouse", "Comet Varga"]
TEXTS = ["Skarvik Lighthouse was built in 1871 by the engineer Ada Holm.", "Comet Varga was discovered by Ilona Varga."]


def test_an_index_of_a_saved_data_set_answers_questions(tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", {"title": TITLES, "text": TEXTS})
    report = build_index([folder], tmp_path / "out", IndexConfig(retriever="bm25"))
    assert (report.documents, report.left_out) == (2, {})
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
    assert status == 2 and "nothing to index" in err and f" hf:{tmp_path}/nowhere:train: cannot be read: " in err


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

    def interrupt(*arguments: Path) -> None:
        raise KeyboardInterrupt

    write_parquet(tmp_path / "wiki" / "train.parquet", {"title": TITLES, "text": TEXTS})
    write_parquet(tmp_path / "other" / "train.parquet", {"title": TITLES[:1], "text": TEXTS[:1]})
    out, config = tmp_path / "out", IndexConfig(retriever="bm25")
    with monkeypatch.context() as patched:
        patched.setattr(artefacts.atomic, "swap_into_place", interrupt)
        with pytest.raises(KeyboardInterrupt):
            build_index([Path(f"hf:{tmp_path}/wiki")], out, config)
    assert (tmp_path / ".out.building" / "made" / "passages").is_dir()
    assert build_index([Path(f"hf:{tmp_path}/other")], out, config).documents == 1
