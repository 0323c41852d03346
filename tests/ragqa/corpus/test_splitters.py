"""Splitting texts into blocks: examples, a plain implementation to compare with, and properties of any text."""

import re
import time
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragqa.artefacts.paths import get_weights_dir
from ragqa.corpus.sources import read_documents
from ragqa.corpus.splitters import (
    Splitter,
    make_sentence_splitter,
    make_splitter,
    make_word_splitter,
    make_wordpiece_splitter,
)
from ragqa.errors import BadInput
from ragqa.matching.sentences import find_sentences
from ragqa.runtime.tokens import Pieces, TextTokenizer


class FakeTokenizer(TextTokenizer):
    """A tokenizer whose pieces have the offsets that a function returns."""

    def __init__(self, find_offsets: Callable[[str], list[tuple[int, int]]]) -> None:
        self.find_offsets = find_offsets

    def tokenize(self, text: str) -> Pieces:
        return Pieces([], self.find_offsets(text), [])


def make_letters(width: int = 1) -> TextTokenizer:
    """Return a tokenizer whose pieces are runs of up to ``width`` characters of a word."""
    return FakeTokenizer(
        lambda text: [
            (start, min(start + width, word.end()))
            for word in re.finditer(r"\S+", text)
            for start in range(word.start(), word.end(), width)
        ]
    )


def split_texts(split: Splitter, text: str, first: int = 0) -> list[str]:
    return [text[start:end] for start, end in split(text, first)]


# Words


def test_word_blocks_have_the_given_number_of_words() -> None:
    assert list(make_word_splitter(2)("  a bb\n\nccc d  e ", 0)) == [(2, 6), (8, 13), (15, 16)]
    assert split_texts(make_word_splitter(2), "a b c d") == ["a b", "c d"]
    assert split_texts(make_word_splitter(1), "a b") == ["a", "b"]
    assert split_texts(make_word_splitter(3), "title\nbody of it all", 6) == ["body of it", "all"]
    assert split_texts(make_word_splitter(), "w " * 250) == [("w " * size).strip() for size in (100, 100, 50)]
    assert split_texts(make_word_splitter(2), "") == split_texts(make_word_splitter(2), " \n\t\x85") == []


# Sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two. Three four! Five? Six", ["One two.", "Three four!", "Five?", "Six"]),
        ("It was 3.5 m long. In 1999. 2000 came.", ["It was 3.5 m long.", "In 1999.", "2000 came."]),
        (
            "He came, e.g. Dr. J. R. Smith and Mrs. Day. Then left.",
            ["He came, e.g. Dr. J. R. Smith and Mrs. Day.", "Then left."],
        ),
        ("The U.S. Army (est. 1775) of gen. Lee. Yes.", ["The U.S. Army (est. 1775) of gen. Lee.", "Yes."]),
        ('She said "Go." He did. "Why?" he asked.', ['She said "Go."', "He did.", '"Why?" he asked.']),
        ("“Go!” “No.” (Really.) Fine… Ok.", ["“Go!”", "“No.”", "(Really.)", "Fine…", "Ok."]),
        ("Yahoo! is old. iPods too. etc. and so on.", ["Yahoo! is old. iPods too. etc. and so on."]),
        (
            "No. 5 lives at St. James. Ende. Über alles. Ça va.",
            ["No. 5 lives at St. James.", "Ende.", "Über alles.", "Ça va."],
        ),
        ("A heading\n\nits text\nhard wrapped. \n\r\n \nmore", ["A heading", "its text\nhard wrapped.", "more"]),
        ("Мир. Труд. नमस्ते. मित्र.", ["Мир.", "Труд.", "नमस्ते.", "मित्र."]),
        (
            "He said no. Five left on Mar. 5 (ca. 1900). See p. 3.",
            ["He said no.", "Five left on Mar. 5 (ca. 1900).", "See p. 3."],
        ),
        ("So. ", ["So."]),
        (". . . A", [". . .", "A"]),
    ],
)
def test_sentences_end_where_the_rules_say(text: str, expected: list[str]) -> None:
    found = list(find_sentences(text, 0))
    assert [text[start:end] for start, end, _ in found] == expected
    assert [length for _, _, length in found] == [len(sentence.split()) for sentence in expected]


def test_blocks_hold_as_many_whole_sentences_as_fit() -> None:
    text = "A b c. D e. F g h i. J."
    assert split_texts(make_sentence_splitter(5), text) == ["A b c. D e.", "F g h i. J."]
    assert split_texts(make_sentence_splitter(4), text) == ["A b c.", "D e.", "F g h i.", "J."]
    assert split_texts(make_sentence_splitter(100), text) == [text]
    assert split_texts(make_sentence_splitter(5), "Title\nA b c. D e.", 6) == ["A b c. D e."]


def test_a_long_sentence_is_cut_and_its_rest_shares_a_block() -> None:
    text = "A b. C d e f g h i. J k. L."
    assert split_texts(make_sentence_splitter(3), text) == ["A b.", "C d e", "f g h", "i. J k.", "L."]
    assert split_texts(make_sentence_splitter(3), "a b c d e f") == ["a b c", "d e f"]


# Wordpieces


def test_wordpiece_blocks_hold_as_many_words_as_fit() -> None:
    split = make_wordpiece_splitter(5, tokenizer=make_letters())
    assert split_texts(split, " ab cd e fghi jk ") == ["ab cd e", "fghi", "jk"]
    assert split_texts(split, "abcdefghijklm no p") == ["abcde", "fghij", "klm no", "p"]
    assert split_texts(split, "Title\nab cdef", 6) == ["ab", "cdef"]
    assert split_texts(make_wordpiece_splitter(2, tokenizer=make_letters(3)), "abcdef ab abc abcd") == [
        "abcdef",
        "ab abc",
        "abcd",
    ]
    assert split_texts(split, " \n") == []


def test_words_without_wordpieces_are_kept() -> None:
    split = make_wordpiece_splitter(3, tokenizer=FakeTokenizer(lambda text: []))
    assert split_texts(split, " a b c d ") == ["a b c d"]


def test_wordpieces_that_share_a_character_stay_together() -> None:
    byte_pieces = FakeTokenizer(
        lambda text: [(i, i + 1) for i, char in enumerate(text) if not char.isspace() for _ in char.encode()]
    )
    assert split_texts(make_wordpiece_splitter(2, tokenizer=byte_pieces), "ab 漢字 c") == ["ab", "漢", "字", "c"]


def test_blocks_of_a_real_tokenizer_are_full() -> None:
    """Each block has as many whole words as fit; the test counts the wordpieces of each block again."""
    tokenizer = TextTokenizer(get_weights_dir() / "encoder")
    text = "Antidisestablishmentarianism, e.g. (naïve) co-operation in Łódź: 12,345.67 漢字かな! " * 60
    size = 64
    blocks = split_texts(make_wordpiece_splitter(size, tokenizer=tokenizer), text)
    assert " ".join(blocks).split() == text.split()
    counts = [len(tokenizer.tokenize(block).ids) for block in blocks]
    assert max(counts) <= size
    for block, following, count in zip(blocks, blocks[1:], counts, strict=False):
        assert count + len(tokenizer.tokenize(following.split()[0]).ids) > size, block


# Any text

TEXTS = st.text(alphabet=st.sampled_from("aB1.!?… \n\r\t\x85\u3000\"'(é漢\0"), max_size=200) | st.text(max_size=60)
SPLITTERS: list[Callable[[int], Splitter]] = [
    make_word_splitter,
    make_sentence_splitter,
    lambda size: make_wordpiece_splitter(size, tokenizer=make_letters(20)),
    lambda size: make_wordpiece_splitter(size, tokenizer=make_letters()),
]


@pytest.mark.parametrize("make", SPLITTERS)
@given(text=TEXTS, size=st.integers(1, 9), data=st.data())
def test_every_visible_character_is_in_exactly_one_block(
    make: Callable[[int], Splitter], text: str, size: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(text)))
    spans = list(make(size)(text, first))
    blocks = [text[start:end] for start, end in spans]
    assert all(block and block == block.strip() for block in blocks)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(first <= start < end <= len(text) for start, end in spans)
    assert "".join("".join(blocks).split()) == "".join(text[first:].split())


@pytest.mark.parametrize("make", SPLITTERS[:2])
@given(text=TEXTS, size=st.integers(1, 9))
def test_words_stay_whole_and_blocks_within_their_size(make: Callable[[int], Splitter], text: str, size: int) -> None:
    blocks = split_texts(make(size), text)
    assert [word for block in blocks for word in block.split()] == text.split()
    assert all(len(block.split()) <= size for block in blocks)


@given(text=TEXTS, size=st.integers(1, 9))
def test_word_blocks_match_a_plain_implementation(text: str, size: int) -> None:
    expected = [text.split()[at : at + size] for at in range(0, len(text.split()), size)]
    assert [block.split() for block in split_texts(make_word_splitter(size), text)] == expected


@given(text=TEXTS, size=st.integers(1, 40))
def test_blocks_of_wordpieces_are_full(text: str, size: int) -> None:
    blocks = split_texts(make_wordpiece_splitter(size, tokenizer=make_letters()), text)
    lengths = [len("".join(block.split())) for block in blocks]
    assert all(length <= size for length in lengths)
    for length, following in zip(lengths, blocks[1:], strict=False):
        assert length + len(following.split()[0]) > size or length == size


# Choice of a splitter, and long texts


def test_splitters_are_chosen_by_name() -> None:
    text = "One two. Three four."
    assert split_texts(make_splitter("words", 3), text) == ["One two. Three", "four."]
    assert split_texts(make_splitter("sentences", 3), text) == ["One two.", "Three four."]
    assert split_texts(make_splitter("wordpieces", 7, make_letters()), text) == ["One two.", "Three", "four."]
    assert len(split_texts(make_splitter("words", None), "w " * 101)) == 2
    assert len(split_texts(make_splitter("sentences", None), "w " * 101)) == 2
    assert len(split_texts(make_splitter("wordpieces", None, make_letters()), "w " * 289)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lines", 5), "'lines': choose one of words, sentences, wordpieces"),
        (("words", 0), "is 0: it must be at least 1"),
        (("sentences", -3), "is -3: it must be at least 1"),
        (("wordpieces", 5), "tokenizer"),
    ],
)
def test_impossible_options_are_rejected(arguments: tuple[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_splitter(*arguments)


class Hostile(NamedTuple):
    text: str
    blocks: int | None


MANY = 300_000
HOSTILE = {
    "one word": Hostile("x" * MANY, MANY // 2000),
    "spaces": Hostile(" " * MANY, 0),
    "a word after spaces": Hostile(" " * MANY + "x", 1),
    "dots": Hostile("." * MANY, MANY // 2000),
    "dots and a space": Hostile("." * MANY + " A", MANY // 2000 + 1),
    "quotes after a stop": Hostile("." + '"' * MANY + " A", MANY // 2000 + 1),
    "opening quotes": Hostile(". " + "(" * MANY, MANY // 2000 + 1),
    "line ends": Hostile("\n" * MANY, 0),
    "line ends and spaces": Hostile("\n " * (MANY // 2) + "x", 1),
    "a space after each stop": Hostile(". " * (MANY // 2), MANY // 200),
}


@pytest.mark.parametrize("kind", ["words", "sentences"])
@pytest.mark.parametrize("name", HOSTILE)
def test_running_time_is_linear_on_any_text(kind: str, name: str) -> None:
    text, blocks = HOSTILE[name]
    started = time.process_time()
    found = sum(1 for _ in make_splitter(kind, 100)(text, 0))
    assert time.process_time() - started < 5
    assert found == blocks


def test_a_word_of_many_wordpieces_is_cut() -> None:
    blocks = split_texts(make_wordpiece_splitter(100, tokenizer=make_letters()), "x" * 250_000)
    assert [len(block) for block in blocks] == [100] * 2500


def test_real_articles_are_covered(shared_data: Path) -> None:
    for document in islice(read_documents([shared_data / "wiki" / "AA.tar.xz"]), 20):
        expected = document.text[document.list_sections()[0].start :].split()
        for kind in ("words", "sentences"):
            blocks = split_texts(make_splitter(kind), document.text, document.list_sections()[0].start)
            assert [word for block in blocks for word in block.split()] == expected
            assert max(len(block.split()) for block in blocks) <= 100
