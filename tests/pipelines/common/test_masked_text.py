"""Masked texts: what is masked, replaced and predicted, as a function of the step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.common.masked_text import (
    MaskedTexts,
    draw_sentences,
    make_position_chooser,
)
from pipelines.common.tokenized_passages import TokenizedPassages
from ragqa.objectives import IGNORED
from ragqa.pretraining.salient import SalientSpan
from ragqa.runtime.tokens import Pieces, TextTokenizer
from tests.helpers import closed_world


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> closed_world.WorldFolders:
    return closed_world.write_world(closed_world.make_world(30, 5, 0), tmp_path_factory.mktemp("world"), width=32)


def test_masked_texts_are_a_function_of_the_step(folders: closed_world.WorldFolders, tmp_path: Path) -> None:
    blocks = TokenizedPassages.open(folders.corpus, TextTokenizer(folders.encoder), tmp_path)
    for kind in ("spans", "words", "uniform"):
        options: Any = {"batch": 5, "max_text": 12, "seed": 3, "only_masks": kind == "uniform"}
        texts = MaskedTexts(
            blocks.store, blocks.tokenizer, make_position_chooser(kind, None, rate=0.3, count=1), **options
        )
        one, other = texts[7], texts[7]
        assert [text.ids for text in one.texts] == [text.ids for text in other.texts]
        assert one.x.ids_NL.shape[1] <= 12
        for row, text in enumerate(one.texts):
            whole = blocks.tokenizer.tokenize(blocks.store[text.row].text).ids
            restored = list(text.ids)
            for place, label in zip(text.positions, text.labels, strict=True):
                restored[place] = label
            assert restored == whole[: len(restored)]
            counted = one.labels_BM[row] != IGNORED
            at = one.positions_BM[row][counted]
            if kind == "uniform":
                assert set(one.x.ids_NL[row][at].tolist()) == {blocks.tokenizer.mask_id}
        assert any(a.ids != b.ids for a, b in zip(one.texts, texts[8].texts, strict=True))


def test_the_pieces_of_a_span_are_replaced_alike(folders: closed_world.WorldFolders, tmp_path: Path) -> None:
    blocks = TokenizedPassages.open(folders.corpus, TextTokenizer(folders.encoder), tmp_path)
    options: Any = {"batch": 200, "max_text": 12, "seed": 3, "only_masks": False}
    mixed = {}
    for kind in ("spans", "words"):
        choose_positions = make_position_chooser(kind, None, rate=0.5, count=1)
        texts = MaskedTexts(blocks.store, blocks.tokenizer, choose_positions, in_spans=kind == "spans", **options)
        runs = [text for text in texts[0].texts if text.positions[-1] - text.positions[0] == len(text.positions) - 1]
        masked = [{text.ids[at] == blocks.tokenizer.mask_id for at in text.positions} for text in runs]
        mixed[kind] = sum(len(kinds) > 1 for kinds in masked)
    assert mixed["spans"] == 0 < mixed["words"]


def test_salient_spans_beyond_a_cut_are_not_masked() -> None:
    """The cut divides the second of three names and removes the third, so only the first can be masked."""

    class Names:
        def find_spans(self, text: str) -> list[SalientSpan]:
            return [SalientSpan(0, 3, "name"), SalientSpan(8, 15, "name"), SalientSpan(20, 23, "name")]

    pieces = Pieces([7, 8, 9], [(0, 3), (4, 7), (8, 12)], [0, 1, 2])
    choose_positions = make_position_chooser("salient", Names(), rate=0.0, count=1)
    positions = [
        choose_positions("Ann saw Nicolas and Bob", pieces, np.random.default_rng(seed)).tolist() for seed in range(9)
    ]
    assert positions == [[0]] * 9


def test_a_sample_is_the_whole_sentences_that_fit() -> None:
    text = "One two three. Four five six. Seven eight nine. Ten eleven twelve."
    found = {text[slice(*draw_sentences(text, np.random.default_rng(seed), 9))] for seed in range(20)}
    assert "One two three. Four five six." in found
    assert all(len(each) < 36 and each[0].isupper() and each[-1] == "." for each in found)
    assert draw_sentences("", np.random.default_rng(0), 9) == (0, 0)
