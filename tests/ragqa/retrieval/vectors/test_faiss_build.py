"""FAISS indexes that are built in parts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ragqa.errors import BadInput, DamagedArtefact
from ragqa.retrieval.vectors import faiss_build, mips
from tests.helpers.damage import rewrite
from tests.helpers.vectors import APPROXIMATE_KINDS, make_unit_vectors


@pytest.mark.parametrize("kind", [kind for kind in APPROXIMATE_KINDS if kind != "hnsw"])
def test_an_index_built_in_parts_equals_one_built_at_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    vectors = make_unit_vectors(1000, 8)
    queries = vectors[::10].astype(np.float32)
    found = []
    for size in (1000, 130):
        monkeypatch.setattr(faiss_build, "PART_ROWS", size)
        folder = tmp_path / str(size)
        folder.mkdir()
        tuned = mips.build(vectors, kind, folder)
        index = mips.open_index(folder, kind, effort=tuned and tuned.effort)
        found.append([ranking.rows.tolist() for ranking in index.search(queries, 10)])
        assert (folder / faiss_build.LISTS_FILE).exists() == (size == 130)
        assert not (folder / ".parts").exists()
    assert found[0] == found[1]
    lists = folder / faiss_build.LISTS_FILE
    rewrite(lists, lists.read_bytes()[:-1])  # a truncated file would end the process, because FAISS still maps it
    with pytest.raises(DamagedArtefact, match=r"faiss\.index is damaged: faiss\.lists is not whole"):
        mips.open_index(folder, kind)
    lists.unlink()
    with pytest.raises(DamagedArtefact, match=r"faiss\.lists is missing"):
        mips.open_index(folder, kind)


def test_a_build_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'cpu'")
    monkeypatch.setattr(faiss_build, "PART_ROWS", 100)
    monkeypatch.setattr(faiss_build.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(BadInput, match=r"cannot write .*faiss\.lists: it needs 0\.0 GB, and 0\.0 are free"):
        mips.build(make_unit_vectors(300, 8), "ivf-flat", tmp_path)
