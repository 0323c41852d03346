"""Gold passages written as documents."""

import json
from pathlib import Path

import pytest

from pipelines.span_reader.config import ReaderConfig
from pipelines.span_reader.gold_passages import write_gold_passages
from ragqa.errors import BadInput
from tests.helpers import tiny
from tests.helpers.span_reader import make_config, write_squad


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("world"))


@pytest.fixture
def config(small: Path, world: tiny.TinyWorld, tmp_path: Path) -> ReaderConfig:
    return make_config(small, world, tmp_path)


def test_gold_passages_do_not_overwrite_the_questions(config: ReaderConfig) -> None:
    before = config.train[0].read_bytes()
    with pytest.raises(BadInput, match="is one of the files that are read"):
        write_gold_passages(config.train, config.train[0].parent / "." / config.train[0].name)
    assert config.train[0].read_bytes() == before


def test_gold_passages_become_documents(tmp_path: Path) -> None:
    out = tmp_path / "gold.jsonl"
    qed = tmp_path / "qed.jsonl"
    rows = [{"question": "q", "answers": ["a"], "passages": ["one", " "], "titles": ["T", "U"]}] * 2
    qed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert write_gold_passages([write_squad(tmp_path / "squad.json"), qed], out) == 8 * 3 + 1
    documents = [json.loads(line) for line in out.read_text().splitlines()]
    assert len({document["id"] for document in documents}) == len(documents)
    assert documents[0]["title"] == "w0" and (documents[-1]["title"], documents[-1]["text"]) == ("T", "one")
    qed.write_text('{"question": "q", "answers": ["a"]}\n')
    with pytest.raises(BadInput, match="no question names a passage"):
        write_gold_passages([qed], tmp_path / "none.jsonl")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gold.jsonl", "qed.jsonl", "squad.json"]
