"""Readers with an early layer: torch, and an export of two graphs."""

from pathlib import Path

import numpy as np
import pytest

from ragqa import artefacts
from ragqa.reading.calibration import Calibration
from ragqa.reading.span import ExtractiveReader
from ragqa.reading.span_candidates import select_promising
from ragqa.runtime.restore import restore_weights
from ragqa.runtime.scorer import SpanScores, load_scorer
from ragqa.runtime.tokens import TokenInput
from ragqa.types import Hit, Passage

INPUTS = [TokenInput([2, 10 + n, 3, *range(20 + 3 * n, 25 + 4 * n), 3], 3) for n in range(5)]


@pytest.fixture(scope="module")
def reader(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    from ragqa.models.span_readers import SpanReader

    path = tmp_path_factory.mktemp("early")
    torch.manual_seed(1)
    model = SpanReader.from_encoder(small, early_layer=1)
    model.config.reader_absence = True
    for parameter in model.encoder.encoder.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.head.weight.data *= 10
    model.early_head.bias.data += 0.3
    model.save(path)
    (path / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    return path


@pytest.fixture(scope="module")
def exported(reader: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ragqa.runtime.export import export

    path = tmp_path_factory.mktemp("early-export") / "reader"
    export(reader, path)
    return path


def test_two_graphs_compute_what_the_whole_model_computes(reader: Path, exported: Path) -> None:
    assert (exported / artefacts.LATER_MODEL).is_file()
    whole, parts = load_scorer(reader), load_scorer(exported)
    assert (parts.early_layer, parts.knows_absence) == (whole.early_layer, whole.knows_absence) == (1, True)
    scores = whole.score(INPUTS)
    for name in ("relevance", "early"):  # differences that are larger than the tolerance below
        assert np.ptp([getattr(score, name) for score in scores]) > 0.4
    for one, other in zip(scores, parts.score(INPUTS), strict=True):
        assert isinstance(one, SpanScores) and isinstance(other, SpanScores)
        assert len(one.start) == len(other.start)
        for name in ("start", "end", "relevance", "early"):
            assert getattr(other, name) == pytest.approx(getattr(one, name), abs=0.1)  # 8 bits
        assert one.absence == pytest.approx(one.start[0] + one.end[0])


@pytest.mark.parametrize("name", ["reader", "exported"])
def test_sequences_that_are_not_selected_have_no_scores(name: str, request: pytest.FixtureRequest) -> None:
    scorer = load_scorer(request.getfixturevalue(name))
    everything = scorer.score(INPUTS)
    seen: list[np.ndarray] = []

    def select(early: np.ndarray) -> np.ndarray:
        seen.append(early)
        return np.array([True, False, True, False, False])

    scores = scorer.score(INPUTS, select)
    assert [score is None for score in scores] == [False, True, False, True, True]
    assert seen[0] == pytest.approx([score.early for score in everything if score], abs=1e-4)
    for row in (0, 2):
        assert np.allclose(scores[row].start, everything[row].start, atol=1e-4)  # type: ignore[union-attr]


def test_windows_near_the_best_and_the_best_three_are_read_on() -> None:
    early = np.array([1.0, 5.0, 4.5, -2.0, 3.0, 2.9])
    assert select_promising(early, 0.1).tolist() == [False, True, True, False, True, False]
    assert select_promising(early, 2.5).tolist() == [False, True, True, False, True, True]
    assert select_promising(early[:2], 0.0).tolist() == [True, True]
    assert select_promising(early[:0], 1.0).tolist() == []


def test_a_reader_selects_the_windows_of_each_question(exported: Path) -> None:
    scorer = load_scorer(exported)
    texts = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9", "w10", "w11 w12"]
    hits = [Hit(Passage(n, str(n), "w20", text, "memory", 0, len(text)), 1.0 - n / 10) for n, text in enumerate(texts)]
    asked = [["w1", "w5", "w7"], [hits, hits[:2], []]]
    everything = ExtractiveReader(scorer, Calibration((0, 1.0, 0, 0))).score(*asked)
    best = ExtractiveReader(scorer, Calibration((0, 1.0, 0, 0), early_margin=0.0)).score(*asked)
    assert [len(scored.windows) for scored in everything] == [5, 2, 0]
    assert [len(scored.windows) for scored in best] == [3, 2, 0]
    early = [score.early for score in everything[0].scores]
    assert [window.passage for window in best[0].windows] == sorted(np.argsort(early)[-3:].tolist())
    answers = ExtractiveReader(scorer, Calibration((0, 1.0, 0, 0), early_margin=0.0)).read(*asked)
    assert answers[0].text and answers[2].text is None


def test_weights_are_restored_from_both_graphs(reader: Path, exported: Path, small: Path, tmp_path: Path) -> None:
    restore_weights(exported, small, tmp_path / "restored")
    for one, other in zip(
        load_scorer(tmp_path / "restored").score(INPUTS), load_scorer(reader).score(INPUTS), strict=True
    ):
        assert one is not None and other is not None
        assert one.start == pytest.approx(other.start, abs=0.1)
        assert one.early == pytest.approx(other.early, abs=0.1)


def test_a_damaged_second_graph_is_reported(exported: Path, tmp_path: Path) -> None:
    import shutil

    from ragqa.errors import DamagedArtefact

    shutil.copytree(exported, tmp_path / "damaged")
    (tmp_path / "damaged" / artefacts.LATER_MODEL).write_bytes(b"no graph")
    with pytest.raises(DamagedArtefact):
        load_scorer(tmp_path / "damaged")
