"""The texts that a pattern needs; the search for them first changes no result."""

import json
import re
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.artefacts.paths import get_demo_dir
from ragqa.matching import patterns
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.metrics import has_answer
from ragqa.text import to_nfd


def search_without_filter(pattern: str, text: str) -> bool:
    found = patterns.compile_pattern(to_nfd(pattern))
    return bool(pattern.strip() and found and found.search(to_nfd(text)))


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"New\s+York|Long Island", {"york", "long island"}),
        (r"Sept?(ember)?|Feb(ruary)?", {"sep", "feb"}),
        (r"(6,?[05]00)\s*K", {"6000", "6500", "6,000", "6,500"}),
        (r".*Wings.*", {"wings"}),
        (r"^\s*(Mr\.|Dr\.) Lee$", {"mr. lee", "dr. lee"}),
        (r"(?:ab)+c", {"ab"}),
        (r"x(?=lookahead)(?!other)\bend", {"xend"}),
        (r"(a|b|c)\1?def", {"def"}),
        (r"(?i:AB)(?-i:Cd)", {"abcd"}),
        (r"[A-C]1", {"a1", "b1", "c1"}),
        (r"[0-9]{4} AD", {" ad"}),
        (r"caf\u00e9 noir", {" noir"}),
        (r"naïve", {"nai"}),
        (r"[^a]|abc", None),
        (r"\d+", None),
        (r"ß", None),
        (r"(abc)?", None),
        (r"(abc|)", None),
        (r"", None),
    ],
)
def test_needed_texts_of_patterns(pattern: str, needed: set[str] | None) -> None:
    search = patterns.compile_search(to_nfd(pattern))
    assert search is not None and search.needed_texts == (needed and frozenset(needed))


def test_invalid_patterns_have_no_search() -> None:
    assert patterns.compile_search("(") is None
    deep = patterns.compile_pattern("(" * 90 + "x" + ")" * 90)
    assert deep is not None and patterns.find_needed_texts(deep) == {"x"}


def test_patterns_need_no_texts_if_the_parser_of_re_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts are searched then."""
    monkeypatch.setattr(patterns, "import_module", lambda name: object())
    assert patterns.find_needed_texts(re.compile("abc")) is None


def test_case_folding_covers_all_characters_that_re_matches_to_ascii() -> None:
    """All of Unicode, decomposed, in upper and lower case."""
    every = {to_nfd(chr(code)) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000}
    alone = "\n".join(text for text in every if len(text) == 1 and text != "\n")
    for letter in string.ascii_lowercase:
        found = re.findall(letter, alone, re.IGNORECASE | re.UNICODE)
        assert len(found) >= 2 and all(patterns.fold_case(each) == letter for each in found)


LITERAL = st.sampled_from(list("abkisKIS .19éßſK"))
ATOM = LITERAL.map(re.escape) | st.sampled_from([".", r"\s", r"\d", "[ab]", "[^a]", "[j-l]", "^", "$", r"\b", "é"])
PATTERN = st.recursive(
    ATOM,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: f"({'|'.join(each)})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{1,2}", "??", "*+"])).map(
            lambda p: f"(?:{p[0]}){p[1]}"
        ),
        st.tuples(st.sampled_from(["(?=", "(?!", "(?<!a)(?:", "(?>", "(?-i:"]), inner).map(lambda p: f"{p[0]}{p[1]})"),
    ),
    max_leaves=8,
)
TEXT = st.text(alphabet="abkisKISſıK .19é\n", max_size=12)


@settings(max_examples=400, deadline=None)
@given(st.lists(PATTERN, max_size=4), st.lists(TEXT, min_size=1, max_size=8))
def test_random_patterns_are_found_where_re_finds_them(asked: list[str], texts: list[str]) -> None:
    finder = AnswerFinder([[each] for each in asked], regex=True)
    for text in texts:
        wanted = [number for number, each in enumerate(asked) if search_without_filter(each, text)]
        assert finder.find_questions(text) == wanted
        assert [number for number, each in enumerate(asked) if has_answer(text, [each], regex=True)] == wanted


def test_patterns_of_curatedtrec_are_found_where_re_finds_them(shared_data: Path) -> None:
    """1,500 patterns are searched in some passages of the demo and in texts made from the patterns."""
    file = shared_data / "curatedtrec" / "train.jsonl"
    if not file.is_file():
        pytest.skip("no CuratedTREC there")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    asked = [row["answers"] for row in rows]
    whole = "\n".join(path.read_text() for path in sorted((get_demo_dir() / "articles").rglob("*.md")))
    texts = [whole[at : at + 600] for at in range(0, len(whole), len(whole) // 40)]
    texts += [" ".join(row["question"] for row in rows[at : at + 20]) for at in range(0, 400, 20)]
    finder = AnswerFinder(asked, regex=True)
    found = 0
    for text in texts:
        wanted = [
            number for number, each in enumerate(asked) if any(search_without_filter(pattern, text) for pattern in each)
        ]
        assert finder.find_questions(text) == wanted
        found += len(wanted)
    assert found > 500  # otherwise the test proves little
