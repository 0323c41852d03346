"""Blocks of texts with little white space: limits, boundaries, exact offsets, and blocks that stay as they were."""

import base64
import json
import random
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from ragqa.artefacts.paths import get_demo_dir, get_weights_dir
from ragqa.corpus.splitter_limits import MAX_CHARACTERS, MAX_WORDPIECES, cut_block, limit_blocks
from ragqa.corpus.splitters import make_splitter
from ragqa.question_files import read_squad
from ragqa.runtime.tokens import TextTokenizer

RANDOM = random.Random(0)
CHINESE = "".join(RANDOM.choices("天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳。,!?", k=30_000))
TEXTS = {
    "Chinese": CHINESE,
    "base64": base64.b64encode(RANDOM.randbytes(30_000)).decode(),
    "minified JSON": json.dumps([{"id": n, "v": n * 7919, "s": "ab" * 7} for n in range(900)], separators=(",", ":")),
    "one letter": "x" * 40_000,
    "emoji": "👩\u200d🔬🏳️\u200d🌈🇸🇪🇳🇴" * 2_000,
    "Thai": "ที่นี่มีประภาคารเก่าแก่แห่งหนึ่ง" * 900,
    "Hangul": "등대는천팔백칠십일년에지어졌다" * 2_000,
    "long lines": "\n".join("".join(RANDOM.choices("あいうえおかきくけこ、。", k=900)) for _ in range(40)),
    "marks": "e" + "\u0301" * 30_000,
    "white space": "a" + " " * 50_000 + "b",
}


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(get_weights_dir() / "encoder")


@pytest.mark.parametrize("kind", ["words", "sentences", "wordpieces"])
@pytest.mark.parametrize("name", TEXTS)
def test_no_block_exceeds_the_limits(kind: str, name: str, tokenizer: TextTokenizer) -> None:
    text = TEXTS[name]
    started = time.process_time()
    spans = list(make_splitter(kind, None, tokenizer)(text, 0))
    assert time.process_time() - started < 10
    blocks = [text[start:end] for start, end in spans]
    assert "".join("".join(blocks).split()) == "".join(text.split())
    assert all(a_end <= start for (_, a_end), (start, _) in pairwise(spans))
    assert all(block == block.strip() for block in blocks)
    assert max(map(len, blocks)) <= MAX_CHARACTERS
    assert max(len(tokenizer.tokenize(block).ids) for block in blocks) <= MAX_WORDPIECES


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("aaaa bbbb cccc", 10, ["aaaa", "bbbb cccc"]),
        ("天地玄黄。宇宙洪荒", 7, ["天地玄黄。", "宇宙洪荒"]),
        ("天地「玄黄。」宇宙洪荒宇宙洪", 8, ["天地「玄黄。」", "宇宙洪荒宇宙洪"]),
        ('{"key":"value"}', 9, ['{"key":"', 'value"}']),
        ("abcdefghij", 5, ["abcde", "fghij"]),
        ("ae\u0301e\u0301e\u0301", 4, ["ae\u0301", "e\u0301e\u0301"]),
        ("👩\u200d🔬👩\u200d🔬", 4, ["👩\u200d🔬", "👩\u200d🔬"]),
        ("a" + "\u0301" * 8, 5, ["a" + "\u0301" * 4, "\u0301" * 4]),
        ("a" + " " * 30 + "b", 5, ["a", "b"]),
        ("short", 5, ["short"]),
    ],
)
def test_blocks_are_cut_at_the_best_boundary(text: str, limit: int, parts: list[str]) -> None:
    assert [text[start:end] for start, end in cut_block(text, 0, len(text), limit)] == parts


CLUSTERS = ["e\u0301", "👩\u200d🔬", "🇸🇪", "ก็", "한", "\u1100\u1161", "\r\n", "\u0301"]
PIECES = ["a", "Bc", " ", "\n", ".", "。", "漢", "1,2", "x" * 9, *CLUSTERS]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.integers(1, 30), st.booleans())
def test_parts_cover_the_block_and_split_no_grapheme(text: str, limit: int, is_even: bool) -> None:
    block = re.search(r"\S(?:.*\S)?", text, re.DOTALL)
    if block is None:
        return
    spans = list(cut_block(text, *block.span(), limit, is_even=is_even))
    parts = [text[start:end] for start, end in spans]
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= limit and part == part.strip() for part in parts)
    is_space = [character.isspace() for character in text]
    graphemes = [match.span() for match in regex.finditer(r"\X", text)]
    if max(end - start for start, end in graphemes) <= limit // 2:
        inside = {place for start, end in graphemes for place in range(start + 1, end)}
        # White space at a boundary is dropped, also where a mark follows it.
        assert not [end for _, end in spans if end in inside and not is_space[end] and not is_space[end - 1]]


def test_larger_blocks_have_larger_limits() -> None:
    text = "word " * 1_000
    assert list(make_splitter("words", 1_000)(text, 0)) == [(0, 4_999)]
    assert len(list(make_splitter("words", 1_000)("x" * 100_000, 0))) == 5


def iter_texts(shared_data: Path) -> Iterator[str]:
    yield from (path.read_text() for path in sorted((get_demo_dir() / "articles").rglob("*.md")))
    squad = shared_data / "squad" / "dev-a-v1.1.json.xz"
    if not squad.is_file():
        pytest.skip("no SQuAD there")
    yield from (paragraph.text for paragraph in read_squad(squad))


@pytest.mark.parametrize("kind", ["words", "sentences", "wordpieces"])
def test_passages_of_ordinary_texts_stay_as_they_were(
    kind: str, shared_data: Path, tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with splitters without limits."""
    limited = make_splitter(kind, None, tokenizer)
    monkeypatch.setattr("ragqa.corpus.splitters.limit_blocks", lambda split, *arguments: split)
    unlimited = make_splitter(kind, None, tokenizer)
    texts = list(iter_texts(shared_data))
    assert len(texts) > 500
    for text in texts:
        assert list(limited(text, 0)) == list(unlimited(text, 0))


def test_the_limit_in_wordpieces_needs_a_tokenizer() -> None:
    split = limit_blocks(lambda text, first: iter([(first, len(text))]), 100)
    assert list(split("漢" * 2_000, 0)) == [(0, 2_000)]
    assert [end - start for start, end in split("漢" * 2_100, 0)] == [1_050, 1_050]
