"""Denoised texts: what the encoder reads and what the decoder learns to write."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from pipelines.denoise.config import DenoiseConfig
from pipelines.denoise.texts import (
    Frame,
    Marks,
    make_corruption,
    split_sentences,
    truncate_sentences,
)
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.settings.groups import replace_settings
from tests.helpers import seq2seq
from tests.helpers.denoise import list_inputs, list_targets, make_denoise_config, open_texts, write_shapes


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seq2seq.write_counting_index(tmp_path_factory.mktemp("counting"))


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture
def config(corpus: Path, shapes: dict[str, Path], tmp_path: Path) -> DenoiseConfig:
    return make_denoise_config(corpus, shapes["t5"], tmp_path / "run")


class Vocabulary:
    """A tokenizer that has only a vocabulary."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces

    def get_vocab(self) -> dict[str, int]:
        return {piece: id_ for id_, piece in enumerate(self._pieces)}


def test_sentinels_are_ids_without_another_use() -> None:
    t5 = Marks.from_tokenizer(Vocabulary("a", "<extra_id_10>", "<extra_id_2>", "<extra_id_0>", "[unused0]"), 9)
    assert t5 == Marks([3, 2, 1], 3)  # in the order of their numbers; the first is the mask
    assert Marks.from_tokenizer(Vocabulary("a", "▁<extra_id_1>", "▁<extra_id_0>"), 3).sentinels == [2, 1]  # mT5
    assert Marks.from_tokenizer(Vocabulary("[unused1]", "[MASK]", "[unused0]", "x"), 9) == Marks([2, 0], 1)  # BERT
    assert Marks.from_tokenizer(Vocabulary("a", "b", "<mask>"), 5) == Marks([3, 4], 2)  # embeddings without piece
    assert Marks.from_tokenizer(Vocabulary("a", "b"), 2) == Marks([], None)


def test_texts_have_the_special_tokens_of_their_model(shapes: dict[str, Path]) -> None:
    """The ids before and after inputs and labels are those of transformers; a label omits the start of the decoder."""
    frames = {
        "t5": Frame(([], [1]), ([], [1])),  # the decoder starts from padding
        "bart": Frame(([0], [2]), ([0], [2])),  # the decoder starts from </s>, so the label has <s>
        "bert": Frame(([2], [3]), ([], [3])),  # the decoder starts from [CLS]
    }
    for kind, frame in frames.items():
        model = Seq2Seq.load(shapes[kind], fresh=True)
        conventions = model.conventions
        assert (
            Frame.from_tokenizer(model.tokens.tokenizer, conventions.start, conventions.ends[0], conventions.pad)
            == frame
        )
    bare = seq2seq.make_tokenizer("bert")
    bare.post_processor = None
    plain = PreTrainedTokenizerFast(tokenizer_object=bare)
    assert Frame.from_tokenizer(plain, 2, 3, 0) == Frame(([2], [3]), ([], [3]))
    assert Frame.from_tokenizer(plain, 0, 1, 0) == Frame(([], [1]), ([], [1]))


def test_input_and_target_together_restore_a_part_of_a_passage(config: DenoiseConfig) -> None:
    texts, tokenizer = open_texts(config)
    store = PassageStore.open(config.corpus / "passages")
    passages = [
        tokenizer(passage.text, add_special_tokens=False)["input_ids"] for passage in store.read_rows(0, len(store))
    ]
    sentinels = Marks.from_tokenizer(tokenizer, 0).sentinels
    for step in range(3):
        batch = texts[step]
        inputs, targets = list_inputs(batch), list_targets(batch)
        for ids, target in zip(inputs, targets, strict=True):
            assert ids.pop() == target.pop() == 1  # </s>
            answers: dict[int, list[int]] = {}
            for id_ in target:
                answers.setdefault(id_, []) if id_ in sentinels else answers[list(answers)[-1]].append(id_)
            assert list(answers) == sentinels[: len(answers)]
            text = [part for id_ in ids for part in answers.get(id_, [id_])]
            assert 20 <= len(text) <= 22  # 24 but for </s> and the last sentinel
            assert any(text == passage[at : at + len(text)] for passage in passages for at in range(6))
        assert batch.x.ids_NL.shape[1] == max(map(len, inputs)) + 1  # padded to the longest


def test_a_batch_is_a_function_of_seed_and_step_and_is_shared_by_processes(
    config: DenoiseConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, _ = open_texts(config)
    one, again, other = texts[5], texts[5], texts[6]
    assert torch.equal(one.x.ids_NL, again.x.ids_NL) and torch.equal(one.labels_BT, again.labels_BT)
    assert not torch.equal(one.x.ids_NL, other.x.ids_NL)
    shares = []
    for rank in (0, 1):
        monkeypatch.setattr("ragqa.training.parallel.get_rank", lambda rank=rank: rank)
        monkeypatch.setattr("ragqa.training.parallel.count_processes", lambda: 2)
        shares += list_inputs(texts[5])
    assert shares == list_inputs(one)


@pytest.mark.parametrize("permute", [False, True])
def test_infilling_masks_spans_and_writes_the_whole_text(
    config: DenoiseConfig, shapes: dict[str, Path], permute: bool
) -> None:
    changed = replace_settings(config, generator=shapes["bart"], objective="infilling", permute=permute, batch=10)
    texts, tokenizer = open_texts(changed)
    batch, stop = texts[0], tokenizer.get_vocab()["."]
    orders = set()
    for ids, target in zip(list_inputs(batch), list_targets(batch), strict=True):
        assert ids[0] == target[0] == tokenizer.get_vocab()["<s>"] and ids[-1] == target[-1] == 2
        words = [id_ for id_ in target[1:-1] if id_ != stop]
        assert all((after - before) % 40 == 1 for before, after in pairwise(words))
        unmasked = [id_ for id_ in ids[1:-1] if id_ != tokenizer.get_vocab()["<mask>"]]
        assert len(unmasked) == len(target) - 2 - round(0.3 * (len(target) - 2))
        assert not Counter(unmasked) - Counter(target)
        unmasked_words = [id_ for id_ in unmasked if id_ != stop]
        orders.add([word for word in words if word in unmasked_words] == unmasked_words)
    assert False in orders if permute else orders == {True}


def test_sentences_keep_the_white_space_before_them() -> None:
    text = "One two. Three four!\n\nFive  six."
    assert split_sentences(text) == ["One two.", " Three four!", "\n\nFive  six."]
    assert "".join(split_sentences(text)) == text
    assert truncate_sentences([[1, 2], [3, 4], [5]], 3) == [[1, 2], [3]]
    assert truncate_sentences([[], [1]], 9) == [[1]] and truncate_sentences([], 9) == []


def test_masks_beyond_the_positions_of_the_model_are_cut() -> None:
    """Empty spans add masks, so that an input could be longer than the model's positions."""
    marks = Marks([], 9)
    # No config allows so short a mean span: nearly all spans are empty.
    corrupt = make_corruption("infilling", marks, room=2, rate=0.1, mean=0.001, is_permuted=False, source="it")
    pair = corrupt([[1, 2]], np.random.default_rng(0))
    assert pair is not None and len(pair[0]) == 2 and pair[1] == [1, 2]


def test_a_corpus_of_too_short_passages_is_refused(config: DenoiseConfig) -> None:
    texts, _ = open_texts(config)
    texts._pieces = lambda texts: [[7] for _ in texts]
    with pytest.raises(BadInput, match="100 passages in a row are too short"):
        texts[0]
