"""Dense retrieval, from questions to hits."""

from pathlib import Path

import numpy as np
import pytest

from ragqa.errors import BadInput, Mismatch
from ragqa.retrieval.base import PassageRetriever
from ragqa.retrieval.dense import DenseRanker
from tests.helpers.passages import PassageList
from tests.helpers.vectors import make_unit_vectors, open_vectors


class WordSumEncoder:
    """An encoder without a model: the normalised sum of one random vector per word."""

    width = 64
    fingerprint = "words"

    def encode(self, texts: list[str]) -> np.ndarray:
        sums = [sum(self._embed_word(word) for word in text.lower().split()) for text in texts]
        return np.stack([v / np.linalg.norm(v) for v in sums]).astype(np.float32)

    encode_questions = encode

    def _embed_word(self, word: str) -> np.ndarray:
        return np.random.default_rng(list(word.encode())).standard_normal(self.width)


def test_questions_retrieve_their_passages(tmp_path: Path) -> None:
    texts = ["the cat sat", "a dog barked", "rain fell on the sea"]
    encoder = WordSumEncoder()
    ranker = DenseRanker(encoder, open_vectors(tmp_path, encoder.encode(texts)))
    retriever = PassageRetriever(ranker, PassageList(texts))
    found = retriever.search(["sea rain", "dog"], 2)
    assert [next(hit.passage.text for hit in hits) for hits in found] == [texts[2], texts[1]]
    assert all(len(hits) == 2 and hits[0].score > hits[1].score for hits in found)
    assert isinstance(found[0][0].score, float)
    expected = encoder.encode(["dog"])[0] @ encoder.encode([texts[1]])[0]
    assert found[1][0].score == pytest.approx(expected, abs=1e-3)
    assert retriever.search([], 2) == []
    with pytest.raises(BadInput, match="k = 0"):
        retriever.search(["dog"], 0)


def test_an_encoder_of_another_width_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match="width 64, the vectors of the index 4"):
        DenseRanker(WordSumEncoder(), open_vectors(tmp_path, make_unit_vectors(5, 4)))
