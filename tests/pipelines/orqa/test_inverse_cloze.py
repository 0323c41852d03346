"""The inverse cloze task: its batches, its counts, and evaluations of recall."""

from pathlib import Path

import numpy as np
import pytest
from conftest import interrupt
from tokenizers import Tokenizer, models, pre_tokenizers

from pipelines.common.contrastive import count_encoded, group_by_length
from pipelines.common.masked_text import MaskedTexts, make_position_chooser, sample_texts
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.orqa import inverse_cloze_loop
from pipelines.orqa.config import CLOZE, InverseClozeConfig
from pipelines.orqa.inverse_cloze_loop import InverseClozeBatches, split_pieces
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.models.tower import Tower
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from ragqa.training.meter import count_flops
from ragqa.types import Passage
from tests.helpers import tiny


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def config(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> InverseClozeConfig:
    few = {"steps": 2, "batch": 8, "dropout": 0.0, "width": 8, "max_block": 32}
    return replace_settings(CLOZE, corpus=world.corpus, encoder=small, out=tmp_path / "run", **few)


def open_passages(config: InverseClozeConfig, deleted: range) -> TokenizedPassages:
    """Open the passages of a corpus from which an update has deleted some rows."""
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), config.out)
    blocks.store = PassageStore(blocks.store._files, np.array(deleted, np.int64))
    return blocks


@pytest.mark.parametrize("drop_rate", [0.5, None])
def test_deleted_passages_are_not_trained_on(config: InverseClozeConfig, drop_rate: float | None) -> None:
    blocks = open_passages(config, range(0, 30))
    batches = InverseClozeBatches(replace_settings(config, drop_rate=drop_rate, keep_rate=1.0), blocks)
    first, last = blocks.tokenizer.special_ids
    live_passages = [[first, *blocks.ids(row, 30), last] for row in range(30, 40)]
    assert all(passage in live_passages for step in range(5) for passage in batches[step].passages)
    with pytest.raises(BadInput, match="holds 10 passages, a batch 11"):
        InverseClozeBatches(replace_settings(config, batch=11), blocks)


def test_deleted_passages_are_not_masked(config: InverseClozeConfig) -> None:
    blocks = open_passages(config, range(0, 30))
    choose_positions = make_position_chooser("uniform", None, rate=0.3, count=1)
    texts = MaskedTexts(
        blocks.store, blocks.tokenizer, choose_positions, batch=30, max_text=12, seed=0, only_masks=True
    )
    assert {text.row for text in texts[0].texts} == set(range(30, 40))
    assert sample_texts(blocks.store) == [blocks.store[row].text for row in range(30, 40)]


@pytest.mark.parametrize("drop_rate", [0.5, None])
def test_rows_with_equal_texts_are_not_negatives_of_each_other(
    config: InverseClozeConfig, tmp_path: Path, drop_rate: float | None
) -> None:
    """All four rows have the same text, so no negative remains and the loss is 0."""
    (tmp_path / "refrain.txt").write_text(" ".join(4 * ["w1 w2 w3 w4. w5 w6 w7 w8."]))
    build_index([tmp_path / "refrain.txt"], tmp_path / "same", IndexConfig(retriever="bm25", block_size=8))
    inverse_cloze_loop.main(replace_settings(config, corpus=tmp_path / "same", batch=4, drop_rate=drop_rate, steps=1))
    (row,) = read_rows(config.out)
    assert row["nll"] == pytest.approx(0, abs=1e-6) and row["accuracy"] == 1.0


def test_a_step_counts_the_tokens_that_it_encodes(
    config: InverseClozeConfig, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[1] * length for length in (3, 9, 9, 2, 4, 4, 4)]
    assert [len(some) for some in group_by_length(rows[:4])] == [2, 2] and [
        len(some) for some in group_by_length(rows[4:])
    ] == [3]
    assert count_encoded(rows, 4) == 2 * 9 + 2 * 3 + 3 * 4
    monkeypatch.setattr("pipelines.common.run.measure_peak_flops", lambda device: 1.0)
    inverse_cloze_loop.main(config)
    row = read_rows(config.out)[0]
    tower = Tower.from_encoder(small, width=8)
    speed = count_flops(tower, row["tokens"]) / row["seconds"]
    assert row["utilisation"] == pytest.approx(speed, rel=0.05)  # seconds are rounded to a tenth of a millisecond
    assert row["tokens/s"] == pytest.approx(row["tokens"] / row["seconds"], rel=0.05)


@pytest.mark.parametrize("pieces", ["words", "bytes"])
def test_title_and_sentences_together_have_the_pieces_of_the_passage(tmp_path: Path, pieces: str) -> None:
    passage = Passage(0, "d", "A title", "One two three. Four five!\n\nSix seven eight.", "d.txt", 0, 43)
    if pieces == "words":
        tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "[UNK]": 2}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        alphabet = {char: id_ for id_, char in enumerate(pre_tokenizers.ByteLevel.alphabet())}
        tokenizer = Tokenizer(models.BPE(alphabet, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    whole = TextTokenizer(tmp_path).tokenize(passage.titled_text)
    title, sentences = split_pieces(passage, whole)
    assert [*title, *(piece for sentence in sentences for piece in sentence)] == whole.ids
    assert [len(title), *map(len, sentences)] == ([2, 4, 3, 4] if pieces == "words" else [8, 15, 12, 16])


def test_recall_of_held_out_questions_is_measured_and_a_killed_run_continues(
    config: InverseClozeConfig, world: tiny.TinyWorld
) -> None:
    lines: list[str] = []
    config = replace_settings(config, steps=4, dev=world.dev, eval_every=3, save_every=2, drop_rate=0.5)
    inverse_cloze_loop.main(config, notify=lines.append)
    assert [line.partition(": recall@1 ")[0] for line in lines] == ["step 0", "step 3", "step 4"]
    assert not (config.out / "dev").exists()
    broken = replace_settings(config, out=config.out.with_name("broken"))
    interrupt(inverse_cloze_loop.main, broken, 3)
    inverse_cloze_loop.main(broken)
    rows, continued = (
        [(row["step"], row.get("nll"), row.get("recall@5")) for row in read_rows(run.out)] for run in (config, broken)
    )
    assert rows == continued and [row[0] for row in rows] == [0, 0, 1, 2, 3, 3, 4]


def test_settings_out_of_range_are_refused(config: InverseClozeConfig) -> None:
    with pytest.raises(BadInput, match=r"lr = 0, batch = 1, width = 0"):
        replace_settings(config, batch=1, lr=0, width=0)
