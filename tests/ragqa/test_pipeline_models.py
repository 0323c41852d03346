"""Models that an index or a pipeline names are found on this machine; nothing is downloaded unasked."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from ragqa.errors import ArtefactError, BadInput, DamagedArtefact
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval.live import open_retriever
from tests.helpers.damage import rewrite, sign

MESSAGE = "the model org/model is not on this machine, and ragqa downloads only models that you name yourself"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub be asked, and fail the test if it is."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="the extra torch is not installed")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def refuse(*arguments: Any, **_: Any) -> None:
        pytest.fail(f"the network was used: {arguments}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def copy(index: Path, tmp_path: Path) -> Path:
    shutil.copytree(index, tmp_path / "docs.index")
    return tmp_path / "docs.index"


@pytest.mark.usefixtures("no_network")
def test_an_index_cannot_make_ask_contact_the_hub(copy: Path, tmp_path: Path) -> None:
    sign(copy, lambda row: row["config"].update(encoder="org/model", blocks="wordpieces"))
    with pytest.raises(ArtefactError, match=MESSAGE):
        Pipeline.load(copy)
    (tmp_path / "new.md").write_text("A new tower was built in 1902.")
    with pytest.raises(ArtefactError, match=MESSAGE):
        update_index(copy, add=[tmp_path / "new.md"])


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(("part", "name"), [("encoder", "org/model"), ("reader", "fid:org/model")])
def test_a_pipeline_cannot_make_ask_contact_the_hub(copy: Path, tmp_path: Path, part: str, name: str) -> None:
    Pipeline.load(copy).save(tmp_path / "p")
    settings = json.loads((tmp_path / "p" / "pipeline.json").read_text())
    rewrite(tmp_path / "p" / "pipeline.json", json.dumps({**settings, part: name}).encode())
    sign(tmp_path / "p")
    with pytest.raises(ArtefactError, match=MESSAGE):
        Pipeline.load(tmp_path / "p")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["models/nosuch", "./nosuch", "nosuch.onnx", "org/nosuch.safetensors", "../nosuch"])
def test_a_mistyped_path_is_not_looked_up_at_the_hub(
    name: str, index: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    for options in ({"encoder": name}, {"reader": f"fid:{name}"}, {"reader": name}):
        with pytest.raises(ArtefactError, match=r"^\S*nosuch\S*: no such directory"):
            Pipeline.load(index, **options)
    with pytest.raises(ArtefactError, match="no such directory"):
        build_index([folder], tmp_path / "i", IndexConfig(retriever="bm25", blocks="wordpieces", encoder=name))


@pytest.mark.usefixtures("no_network")
def test_a_name_of_the_hub_is_announced_before_it_is_looked_up(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub, transformers = pytest.importorskip("transformers.utils.hub"), pytest.importorskip("transformers")
    errors: list[str] = []

    def fail(*_: Any, **__: Any) -> None:
        errors.append(capsys.readouterr().err)
        raise OSError("no network")

    monkeypatch.setattr(hub, "cached_file", fail)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", fail)
    for number, (part, kind) in enumerate({"encoder": "", "reader": "fid:"}.items()):
        name = f"org/new-{part}"
        with pytest.raises(
            ArtefactError, match=f"{name} is not a directory here, .* hub gave no such model: no network"
        ):
            Pipeline.load(index, **{part: f"{kind}{name}"})
        assert errors[number].splitlines()[-1] == f"asking the Hugging Face hub for {name}"


def test_a_model_that_was_downloaded_before_is_used(
    small: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="the extra torch is not installed")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    stored = tmp_path / "hub" / "models--org--model"
    shutil.copytree(small, stored / "snapshots" / "abc")
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("abc")
    build_index([folder], tmp_path / "i", IndexConfig(retriever="dense", encoder=str(small)))
    sign(tmp_path / "i", lambda row: row["config"].update(encoder="org/model"))
    assert open_retriever(tmp_path / "i").search(["lighthouse"], 1)[0]


def test_a_folder_named_default_does_not_replace_the_default_encoder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "default").mkdir()
    monkeypatch.chdir(tmp_path)
    build_index([folder], tmp_path / "i", IndexConfig(retriever="dense"))
    for encoder in (None, "default"):
        assert open_retriever(Path("i"), encoder=encoder).search(["Who built the lighthouse?"], 1)[0]
    Pipeline.load("i", encoder="default").save("p")
    assert Pipeline.load("p").ask("Who built the lighthouse?").text is not None
    with pytest.raises(ArtefactError, match="default is not an encoder"):
        open_retriever(Path("i"), encoder="./default")


def test_a_part_whose_name_holds_a_zero_byte_is_reported(copy: Path, tmp_path: Path) -> None:
    Pipeline.load(copy).save(tmp_path / "p")
    settings = json.loads((tmp_path / "p" / "pipeline.json").read_text())
    rewrite(tmp_path / "p" / "pipeline.json", json.dumps({**settings, "index": "\0"}).encode())
    sign(tmp_path / "p")
    with pytest.raises(DamagedArtefact):
        Pipeline.load(tmp_path / "p")


def test_a_pipeline_with_a_replaced_part_is_not_saved(copy: Path, tmp_path: Path) -> None:
    pipeline = Pipeline.load(copy)
    pipeline.reader = Pipeline.load(copy).reader
    with pytest.raises(BadInput, match="only a pipeline whose parts were loaded from directories can be saved"):
        pipeline.save(tmp_path / "p")
    assert not (tmp_path / "p").exists()
