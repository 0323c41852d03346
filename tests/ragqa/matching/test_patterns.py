"""The texts that a pattern needs; the search for them first changes no result."""

import json
import re
import string
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from ragqa.artefacts.paths import get_demo_dir
from ragqa.errors import SlowPattern
from ragqa.matching import patterns
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.metrics import has_answer
from ragqa.text import to_nfd
from ragqa.types import Question


def search_without_filter(pattern: str, text: str) -> bool:
    try:
        found = re.compile(to_nfd(pattern), re.IGNORECASE | re.UNICODE | re.MULTILINE)
        return bool(pattern.strip() and found.search(to_nfd(text)))
    except re.error:
        return False
    except SystemError:  # Python 3.11 has a bug with groups in possessive repeats
        reject()


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
    assert patterns.find_needed_texts("(" * 90 + "x" + ")" * 90) == frozenset({"x"})


def test_patterns_need_no_texts_if_the_parser_of_re_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts are searched then."""
    monkeypatch.setattr(patterns, "import_module", lambda name: object())
    assert patterns.find_needed_texts("abc") is None


def test_case_folding_covers_all_characters_that_re_matches_to_ascii() -> None:
    """All of Unicode, decomposed, in upper and lower case."""
    every = {to_nfd(chr(code)) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000}
    alone = "\n".join(text for text in every if len(text) == 1 and text != "\n")
    for letter in string.ascii_lowercase:
        found = re.findall(letter, alone, re.IGNORECASE | re.UNICODE)
        assert len(found) >= 2 and all(patterns.fold_case(each) == letter for each in found)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 4000 + "!"),
        (r"([a-z ]+)*keeper\d", "the lighthouse keeper of " * 40),
        ("(x+x+)+y", "xxy" * 900),
    ],
)
def test_patterns_that_never_end_in_re_end_in_time(pattern: str, text: str) -> None:
    search = patterns.compile_pattern(pattern)
    assert search is not None
    start = monotonic()
    with suppress(SlowPattern):
        search.search(text)
        search.match(text)
        search.find_all(text)
    assert monotonic() - start < 60  # re needs years


def test_the_error_of_a_slow_pattern_names_pattern_and_question() -> None:
    pattern, text = r"([a-z ]+)*keeper\d", "the lighthouse keeper of " * 40
    questions = [Question("Who?", ("nobody",), "q1"), Question("Who?", ("x", pattern), "q2")]
    with (
        pytest.raises(
            SlowPattern, match=r"the pattern '\(\[a-z \]\+\)\*keeper\\\\d' of question q2 takes more than 1 s"
        ),
        patterns.name_slow_question(questions),
    ):
        has_answer(text, questions[1].answers, regex=True)


@pytest.mark.parametrize(
    ("pattern", "text", "spans"),
    [
        ("diyarbakir", "in Diyarbakır", [(3, 13)]),
        ("işık", "IŞIK", [(0, 4)]),
        ("(?-i:ı)", "iı", [(1, 2)]),
        (r"\bS", "e\u0301S", [(2, 3)]),  # for re, an accent is no part of a word
        (r"o\w+n", "o\u0308on", []),
        (r"[\w-]+", "e\u0301-a", [(0, 1), (2, 4)]),
        (r"a\sb|[\s]c", "a\x1cb \x1fc", [(0, 3), (4, 6)]),
        (r"\B\W\S", "e\u0301\u0301a", [(2, 4)]),
        (r"[[:alpha:]]", "[]p]", [(0, 2), (2, 4)]),
        (r"[]\[[]+", "[]]", [(0, 3)]),
        ("foo{e}", "foo{E} fxo", [(0, 6)]),
        ("(?:foo){e<=1}", "fxo", []),
        (r"a{2}b{,1}\N{BULLET}\{", "aab•{", [(0, 5)]),
    ],
)
def test_patterns_mean_what_they_mean_in_re(pattern: str, text: str, spans: list[tuple[int, int]]) -> None:
    search = patterns.compile_pattern(pattern)
    assert search is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = re.finditer(pattern, text, re.IGNORECASE | re.UNICODE | re.MULTILINE)
    assert search.find_all(text) == [match.span() for match in found] == spans


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


@settings(max_examples=400)
@given(st.lists(PATTERN, max_size=4), st.lists(TEXT, min_size=1, max_size=8))
def test_random_patterns_are_found_where_re_finds_them(patterns: list[str], texts: list[str]) -> None:
    finder = AnswerFinder([[each] for each in patterns], regex=True)
    for text in texts:
        expected = [number for number, each in enumerate(patterns) if search_without_filter(each, text)]
        assert finder.find_questions(text) == expected
        assert [number for number, each in enumerate(patterns) if has_answer(text, [each], regex=True)] == expected


def test_patterns_of_curatedtrec_are_found_where_re_finds_them(shared_data: Path) -> None:
    """1,500 patterns are searched in some passages of the demo and in texts made from the patterns."""
    file = shared_data / "curatedtrec" / "train.jsonl"
    if not file.is_file():
        pytest.skip("no CuratedTREC there")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    patterns = [row["answers"] for row in rows]
    whole = "\n".join(path.read_text() for path in sorted((get_demo_dir() / "articles").rglob("*.md")))
    texts = [whole[at : at + 600] for at in range(0, len(whole), len(whole) // 40)]
    texts += [" ".join(row["question"] for row in rows[at : at + 20]) for at in range(0, 400, 20)]
    finder = AnswerFinder(patterns, regex=True)
    found = 0
    for text in texts:
        expected = [
            number
            for number, each in enumerate(patterns)
            if any(search_without_filter(pattern, text) for pattern in each)
        ]
        assert finder.find_questions(text) == expected
        found += len(expected)
    assert found > 500  # otherwise the test proves little
