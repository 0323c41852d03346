"""Quotations are found in texts, or the nearest words are: cases by hand."""

from time import perf_counter

import pytest

from ragqa.errors import BadInput
from ragqa.matching.folded_text import fold_text
from ragqa.matching.quotes import MAX_QUOTE, MAX_TEXT, find_quote

TEXT = "The bridge was designed by John Fowler.\nIt opened in 1890 — with “speeches”."


@pytest.mark.parametrize(
    ("text", "folded", "offsets"),
    [
        ("A  b\n c", "a b c", [0, 1, 3, 4, 6]),
        ("“x”—‘y’", "\"x\"-'y'", [0, 1, 2, 3, 4, 5, 6]),
        ("ﬁn\u00adal", "final", [0, 0, 1, 3, 4]),
        ("exam-\nple", "example", [0, 1, 2, 3, 6, 7, 8]),
        ("well-known", "wellknown", [0, 1, 2, 3, 5, 6, 7, 8, 9]),
        ("1-\n2 – 3-4", "1-2 - 3-4", [0, 1, 3, 4, 5, 6, 7, 8, 9]),
        ("e\u0301", "e\u0301", [0, 1]),
        ("é", "e\u0301", [0, 0]),
        ("  a  ", "a", [2]),
        ("", "", []),
    ],
)
def test_folding(text: str, folded: str, offsets: list[int]) -> None:
    result = fold_text(text)
    assert (result.text, result.offsets.tolist()) == (folded, offsets)


@pytest.mark.parametrize(
    ("quote", "match", "found"),
    [
        ("designed by John Fowler", "exact", "designed by John Fowler"),
        (" designed by John Fowler. ", "exact", "designed by John Fowler."),
        ("DESIGNED BY JOHN FOWLER", "typographic", "designed by John Fowler"),
        ("John Fowler. It opened", "typographic", "John Fowler.\nIt opened"),
        ('1890 - with "speeches"', "typographic", "1890 — with “speeches”"),
        ("1890", "exact", "1890"),
        ("it closed on a Monday in winter", "none", None),
        ("completely unrelated", "none", None),
    ],
)
def test_a_quotation_is_found_exactly_or_but_for_typography(quote: str, match: str, found: str | None) -> None:
    result = find_quote(quote, TEXT)
    assert result.match == match
    assert (None if result.start is None else TEXT[result.start : result.end]) == found
    assert result.is_found == (found is not None) and result.count == int(found is not None)
    assert result.difference is None


@pytest.mark.parametrize(
    ("quote", "found", "difference", "similarity"),
    [
        # Characters of the equal words on both sides, divided by those of all words of both parts.
        (
            "designed by Jon Fowler",
            "designed by John Fowler",
            "designed by [-Jon-]{+John+} Fowler",
            2 * 16 / (19 + 20),
        ),
        ("designed by John Fowl", "designed by John Fowler", "designed by John [-Fowl-]{+Fowler+}", 2 * 14 / (18 + 20)),
        ("It opened in 1891", "It opened in 1890", "It opened in [-1891-]{+1890+}", 2 * 10 / (14 + 14)),
        ("The bridge designed by", "The bridge was designed by", "The bridge {+was+} designed by", 2 * 19 / (19 + 22)),
        (
            "bridge was cleverly designed",
            "bridge was designed",
            "bridge was [-cleverly-] designed",
            2 * 17 / (25 + 17),
        ),
    ],
)
def test_the_nearest_words_are_shown_with_their_difference(
    quote: str, found: str, difference: str, similarity: float
) -> None:
    result = find_quote(quote, TEXT)
    assert result.match == "different" and not result.is_found and result.count == 0
    assert result.start is not None and TEXT[result.start : result.end] == found
    assert result.difference == difference
    assert result.similarity == pytest.approx(similarity, abs=1e-4)


def test_long_equal_parts_are_left_out_of_a_difference() -> None:
    words = " ".join(f"word{number}" for number in range(100, 130))
    result = find_quote(f"{words} left {words} right", f"Begin. {words} middle {words} right end.")
    assert result.difference == "… word127 word128 word129 [-left-]{+middle+} word100 word101 word102 …"


def test_a_quotation_has_whole_words_and_occurrences_are_counted() -> None:
    assert find_quote("art", "a party, an artist").match == "none"
    result = find_quote("art", "a party of Art, and art for art")
    assert (result.match, result.start, result.count) == ("exact", 20, 3)
    assert find_quote("bb", "bb bb bb").count == 3


def test_languages_without_spaces_and_other_alphabets() -> None:
    text = "福斯桥由约翰·福勒设计。Мост открыт в 1890 году."
    assert find_quote("约翰·福勒设计", text).match == "exact"
    assert find_quote("МОСТ ОТКРЫТ", text).match == "typographic"
    assert find_quote("约翰·福勒建造设计", text).difference == "约翰·福勒 [-建造-] 设计"


def test_quotations_that_cannot_be_checked() -> None:
    with pytest.raises(BadInput, match="no letters or digits"):
        find_quote(" …! ", TEXT)
    with pytest.raises(BadInput, match=f"at most {MAX_QUOTE}"):
        find_quote("a" * (MAX_QUOTE + 1), TEXT)
    with pytest.raises(BadInput, match=f"at most {MAX_TEXT}"):
        find_quote("a", "a" * (MAX_TEXT + 1))
    assert find_quote("a", "").match == "none"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("the quick brown fox jumps over the lazy dog", "lorem ipsum dolor sit amet " * 185_000),
        ("a" * 1990 + "b", "a" * 5_000_000),
        ("a " * 990 + "b", "a " * 2_500_000),
        ("aa", "aaaa " * 1_000_000),
        (", " * 500 + "a" + ", " * 490, ", " * 2_500_000),
    ],
    ids=["other words", "one word", "equal words", "parts of words", "punctuation"],
)
def test_time_is_bounded_in_texts_of_5_mb(quote: str, text: str) -> None:
    start = perf_counter()
    find_quote(quote, text)
    assert perf_counter() - start < 60  # 2 to 8 s on two busy cores
