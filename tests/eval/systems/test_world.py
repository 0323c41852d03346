"""The closed world: held-out facts are in passages only, and files of another world are not replaced."""

from pathlib import Path

import pytest

from eval.systems.world import World, make_world, write_world
from ragqa.errors import Mismatch
from ragqa.runtime.tokens import TextTokenizer


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(150, 50, 0)


def test_training_texts_contain_no_held_out_fact(world: World, tmp_path: Path) -> None:
    folders = write_world(world, tmp_path)
    known = (tmp_path / "known.jsonl").read_text() + (tmp_path / "texts.jsonl").read_text()
    corpus = (tmp_path / "corpus.jsonl").read_text()
    assert len(world.known) + len(world.held_out) == corpus.count("\n") == 450 and len(world.held_out) == 50
    for fact in world.held_out:
        lines_with_both = [
            line for line in known.splitlines() if f" {fact.entity} " in line and f" {fact.object} " in line
        ]
        others = [other.object for other in world.known if other.entity == fact.entity]
        assert not lines_with_both or fact.object in others
        assert any(passage in corpus for passage in fact.passages)
    tokenizer = TextTokenizer(folders.encoder)
    names = [tokenizer.tokenize(fact.entity).ids for fact in world.known]
    (unknown,) = tokenizer.tokenize("?").ids
    assert all(len(name) >= 3 and unknown not in name for name in names)
    assert len({piece for name in names for piece in name}) < 230  # so each wordpiece is in several names


def test_a_world_is_whole_or_absent_and_not_replaced_by_another(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("eval.systems.world._write_encoder_config", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_world(world, tmp_path / "world")
    assert not any(tmp_path.iterdir())
    folders = write_world(world, tmp_path / "world")
    before = folders.train_questions.stat().st_mtime_ns
    assert write_world(world, folders.root).root == folders.root
    assert folders.train_questions.stat().st_mtime_ns == before
    with pytest.raises(Mismatch, match=r"'seed': 0}, not .*'seed': 1}: choose another folder") as caught:
        write_world(world, folders.root, seed=1)
    assert "\n" not in str(caught.value)
