"""Salient spans: example sentences, properties on any text, and sentences labelled by hand.

``tests/data/salient.jsonl`` has the labels of 34 sentences of the shared Wikipedia archive AD: document, first
character of the sentence in its text, length, and spans as [start, end, kind] from there. They were drawn at random
and labelled before the rules were written.
"""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.corpus.sources import read_documents
from ragqa.errors import BadInput, MissingExtra
from ragqa.pretraining.salient import KINDS, RuleTagger, SalientSpan, SpacyTagger, Tagger
from ragqa.pretraining.tagger.lexicon import HashedStrings, Lexicon

ROOT = Path(__file__).resolve().parents[3]
PLAIN = RuleTagger()


def mark(text: str, tagger: Tagger = PLAIN) -> str:
    """Return the text with its names in [], dates in {} and numbers in <>."""
    out, at = "", 0
    for span in tagger.find_spans(text):
        left, right = {"name": "[]", "date": "{}", "number": "<>"}[span.kind]
        out += text[at : span.start] + left + text[span.start : span.end] + right
        at = span.end
    return out + text[at:]


def check(expected: str, tagger: Tagger = PLAIN) -> None:
    assert mark(expected.translate(str.maketrans("", "", "[]{}<>")), tagger) == expected


@pytest.mark.parametrize(
    "expected",
    [
        "The [University of Oxford] is older than [Harvard].",
        "[Ludwig van Beethoven] met [Johann Wolfgang von Goethe] in [Teplitz].",
        "It was [von Neumann] who read [al-Khwarizmi] and [d'Alembert].",
        "[J. R. R. Tolkien] taught [English] in [St. Petersburg].",
        "Dr. [Martin Luther King, Jr.] spoke to Queen [Elizabeth II] of the [United Kingdom].",
        "Queen [Victoria] met the [Duke of Wellington] and [Alexander the Great].",
        "The Bishop of [Rome] wrote to [Hilary of Arles].",
        "[Jane Doe] of the [University of Maryland] works for [Apple Inc.] in [Los Angeles]-based teams.",
        "[Barack Obama]'s friends saw [O'Neill]’s house in [Washington].",
        "In the [U.S.] the [Hewlett-Packard Company] and [AT&T] make computers with a CPU.",
        "the [Ministry of Health and Social Security], the [Institute for Advanced Study]",
        "The [French] and the [Franco-Prussian War] and the [Nyquist–Shannon] theorem",
        "I think that he and I saw [Napoleon I] there.",
        "Old computers: [Windows 95], [Apollo 11] and a [B-52] bomber",
        "Water is H2O, and salt is NaCl.",
        "as in Article <74> of the [Mexican] law, Figure <3>",
        'He read "[Gone with the Wind]", "[Casablanca]," and "a small word".',
        "She lives in the [US]. We live in [São Paulo], [Łódź] and [Москва].",
        "THE END OF THE ROMAN EMPIRE",
        "A stone fell. Later it rose. Then [Peter] came.",
        "[Biddle] said so. Running helps. Computers help. Early [NFL] games",
    ],
)
def test_names(expected: str) -> None:
    check(expected)


@pytest.mark.parametrize(
    "expected",
    [
        "On {4 July 1776}, or {July 4, 1776}, or the <4th>",
        "in {1776}, the {1990s}, {44 BC}, {AD 60}, the {19th century} and the {late 20th-century}",
        "She may come in {May} or march",
        "[May Smith] left on {March 3} and in {August 1212}; [August Strindberg] did not.",
        "from {1914–18} until {early 1966}, on {Monday}, {today}, {last week} and {two years later}",
        "the {third Monday of November}, the {second half of the 1950s}, {January–March}",
        "in the {later 12th} and {early 13th centuries}",
        "Year {834} was a leap year; he died in {445}, when [Rome] fell (<3> men).",
        "The {1990} elections had over <1990> voters, and <1672> analyses were made in {1990}.",
        "{Two months later}, <800> men and {800 BC}",
    ],
)
def test_dates(expected: str) -> None:
    check(expected)


@pytest.mark.parametrize(
    "expected",
    [
        "<25> km, <57.8>%, $<14 million>, <1,234.5> m, a <12>-day trip, <7–10> days, <25>km",
        "<two hundred and fifty> men, <twenty-five> of them, <two thirds> and <one hundred>",
        "one of those, someone, <seven>, <three>-party, number <one>",
        "the <first> and the <second> time; he first came second, then <third>",
        "uranium-238, MD-like x2 and [MD5] are no numbers, <.521> is, <−1> too (<MCCCLI>)",
    ],
)
def test_numbers(expected: str) -> None:
    check(expected)


def test_titles_of_the_corpus_keep_names_whole() -> None:
    tagger = RuleTagger(["Bosnia and Herzegovina", "The Wizard of Oz (film)", "Prince Edward Island", "Pope Paul VI"])
    check("[Bosnia] and [Herzegovina]")
    check("[Bosnia and Herzegovina]", tagger)
    check("The [Wizard of Oz] is a film.")
    check("[The Wizard of Oz] is a film.", tagger)
    check("on [Prince Edward Island], Pope [Paul VI]", tagger)
    check("the [Arts and Crafts] movement", RuleTagger(["Arts and Crafts movement"]))
    check('the "[De re rustica]" and the "natural order"', RuleTagger(["De re rustica", "Natural order"]))
    check("Politics of [El Salvador]", RuleTagger(["Politics of El Salvador"]))


def test_spelling_in_the_corpus_decides_at_the_start_of_a_sentence() -> None:
    check("[Enamines] are made. Manning came.")
    tagger = RuleTagger(texts=["Some enamines are made, and enamines boil, said Bill Manning."])
    check("Enamines are made. [Manning] came.", tagger)


def test_every_word_of_a_title_but_the_first_is_counted() -> None:
    lexicon = Lexicon(["Internet radio", "Radio Luxembourg", "Bill Manning"])
    assert lexicon.is_ordinary("Radio") and lexicon.is_proper("manning") and not lexicon.is_proper("Internet")
    assert not lexicon.is_ordinary("Manning") and not lexicon.is_ordinary("unknown")


@settings(max_examples=30)
@given(st.sets(st.text(max_size=20), max_size=20), st.text(max_size=5))
def test_hashed_strings_behave_like_a_set(strings: set[str], other: str) -> None:
    hashes = HashedStrings(strings)
    assert len(hashes) == len(strings) and all(string in hashes for string in strings)
    assert (other in hashes) == (other in strings)


PIECES = (
    *("A", "Aa", "a", "of", "the", "and", "King", "The", "U.S.", "J.", "II", "MCM", "é", "E\u0301", "中", "\U0001d400"),
    *(
        "May",
        "early",
        "1990",
        "1990s",
        "12",
        "first",
        "two hundred",
        "BC",
        "century",
        '"',
        "'s",
        "-",
        "–",
        ".",
        ",",
        "(",
    ),
    *(" ", " ", " ", "\n", "\xa0", "\0", "\ud800"),
)


@settings(max_examples=200)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=30).map("".join)))
def test_spans_are_sorted_disjoint_and_never_empty(text: str) -> None:
    end = 0
    for span in RuleTagger(["King of A", "Aa and Aa"], [text]).find_spans(text):
        assert end <= span.start < span.end <= len(text) and span.kind in KINDS
        assert text[span.start : span.end] == text[span.start : span.end].strip()
        end = span.end


@pytest.mark.parametrize("piece", ["School of A and ", "A of the ", '"A', "1,111-", "A-a-", "King ", "two hundred "])
def test_names_and_running_time_stay_bounded(piece: str) -> None:
    """Quadratic running time would take minutes here."""
    assert all(span.end - span.start < 1000 or " " not in piece for span in PLAIN.find_spans(piece * 5000))


def test_a_pickled_tagger_finds_the_same_in_another_process() -> None:
    tagger, text = RuleTagger(["Bosnia and Herzegovina"]), "In 1992, Bosnia and Herzegovina had four million people."
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).find_spans(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, text], input=pickle.dumps(tagger), capture_output=True, cwd=ROOT, check=True
    )
    assert done.stdout.decode().strip() == str(tagger.find_spans(text))
    assert len(tagger.find_spans(text)) == 3


def fake_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a fake spaCy with one model that finds the same four entities in every text."""
    entities = [(0, 5, "PERSON"), (9, 13, "DATE"), (14, 18, "TIME"), (20, 23, "CARDINAL")]

    def load(name: str, *, exclude: list[str]) -> object:
        if name != "en_core_web_sm":
            raise OSError(f"[E050] Can't find model '{name}'.")
        found = [SimpleNamespace(start_char=start, end_char=end, label_=label) for start, end, label in entities]
        return lambda text: SimpleNamespace(ents=found)

    module = ModuleType("spacy")
    module.load = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spacy", module)


def test_spacy_entities_become_names_dates_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spacy(monkeypatch)
    tagger: Tagger = SpacyTagger()
    assert tagger.find_spans("Alice in 1990 noon, 300") == [
        SalientSpan(0, 5, "name"),
        SalientSpan(9, 13, "date"),
        SalientSpan(20, 23, "number"),
    ]


def test_a_missing_spacy_model_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spacy(monkeypatch)
    with pytest.raises(BadInput, match=r"^the spaCy model 'en_big' is not installed: .*$"):
        SpacyTagger("en_big")


def test_the_error_without_spacy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match="'spacy'"):
        SpacyTagger()


def test_the_rules_agree_with_labels_made_by_hand(shared_data: Path) -> None:
    rows = map(json.loads, (ROOT / "tests" / "data" / "salient.jsonl").read_text().splitlines())
    labels = {row["document"]: row for row in rows}
    correct = predicted = labelled = 0
    for document in read_documents([shared_data / "wiki" / "AD.tar.xz"]):
        if row := labels.pop(document.id, None):
            sentence = document.text[row["offset"] : row["offset"] + row["length"]]
            spans = {(span.start, span.end, span.kind) for span in PLAIN.find_spans(sentence)}
            expected = {(start, end, kind) for start, end, kind in row["spans"]}
            correct, predicted, labelled = (
                correct + len(spans & expected),
                predicted + len(spans),
                labelled + len(expected),
            )
        if not labels:
            break
    assert labelled == 100
    assert 2 * correct / (predicted + labelled) >= 0.915  # F1 with exact boundaries
