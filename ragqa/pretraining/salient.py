"""Salient spans: names, dates and numbers, which are hard to predict without a retriever.

Source: REALM (Guu et al. 2020), section 3.4. REALM finds names by a tagger trained on CoNLL-2003 and dates by a regular
expression; ragqa adds numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ragqa.errors import BadInput, MissingExtra
from ragqa.pretraining.tagger.dates import find_dates
from ragqa.pretraining.tagger.lexicon import Lexicon
from ragqa.pretraining.tagger.names import find_names
from ragqa.pretraining.tagger.numbers import find_numbers
from ragqa.pretraining.tagger.works import find_works

KINDS = ("name", "date", "number")
"""Kinds of salient spans."""
_NAME_LABELS = "PERSON PER NORP FAC ORG GPE LOC PRODUCT EVENT WORK_OF_ART LAW LANGUAGE MISC"
_NUMBER_LABELS = "CARDINAL ORDINAL PERCENT QUANTITY MONEY"
_KIND_OF_LABEL = (
    dict.fromkeys(_NAME_LABELS.split(), "name") | dict.fromkeys(_NUMBER_LABELS.split(), "number") | {"DATE": "date"}
)
_UNUSED_COMPONENTS = ["tagger", "parser", "attribute_ruler", "lemmatizer"]


@dataclass(frozen=True, slots=True)
class SalientSpan:
    """Name, date or number: the characters ``start`` to ``end`` (exclusive) of a text."""

    start: int
    end: int
    kind: str
    """One of ``KINDS``."""


class Tagger(Protocol):
    """Interface of taggers, which find salient spans."""

    def find_spans(self, text: str) -> list[SalientSpan]:
        """Return the salient spans of ``text``, sorted and without overlaps."""
        ...


class RuleTagger:
    """Rule-based tagger for English, which is deterministic and needs no model.

    Args:
        titles: document titles of the corpus, from which the tagger learns names and capitalised words. Six million
            titles take 98 MB of memory, and 507 MB during construction.
        texts: a few thousand articles of the corpus, from which the tagger learns words that are usually in lower case.
            Then it mistakes fewer words at the start of a sentence for names.
    """

    def __init__(self, titles: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
        self._lexicon = Lexicon(titles, texts)

    def find_spans(self, text: str) -> list[SalientSpan]:
        """Return the salient spans of ``text``, sorted and without overlaps."""
        spans: list[SalientSpan] = []
        for kind, find in (
            ("name", partial(find_works, lexicon=self._lexicon)),
            ("date", find_dates),
            ("name", partial(find_names, lexicon=self._lexicon)),
            ("number", find_numbers),
        ):
            ranges = list(find(_blank_out(text, spans)))
            spans += [SalientSpan(start, end, kind) for start, end in ranges]
            spans.sort(key=lambda span: span.start)
        return spans


def _blank_out(text: str, spans: list[SalientSpan]) -> str:
    """Replace spans by NUL characters, so that later rules find nothing there."""
    pieces, after = [], 0
    for span in spans:
        pieces += [text[after : span.start], "\0" * (span.end - span.start)]
        after = span.end
    return "".join([*pieces, text[after:]])


class SpacyTagger:
    """Tagger that uses an installed spaCy model.

    Unlike ``RuleTagger``, it counts durations as dates, and units as parts of numbers.

    Args:
        model: name or path of the model.

    Raises:
        MissingExtra: spaCy is not installed.
        BadInput: the model is not installed.
    """

    def __init__(self, model: str = "en_core_web_sm") -> None:
        try:
            import spacy
        except ImportError:
            raise MissingExtra("tagging with spaCy", "spacy") from None
        try:
            self._model: Any = spacy.load(model, exclude=_UNUSED_COMPONENTS)
        except OSError:
            raise BadInput(
                f"the spaCy model {model!r} is not installed: run python -m spacy download {model}, "
                "or use the rule-based tagger"
            ) from None

    def find_spans(self, text: str) -> list[SalientSpan]:
        """Return the salient spans of ``text``, sorted and without overlaps."""
        entities = [(e.start_char, e.end_char, _KIND_OF_LABEL.get(e.label_)) for e in self._model(text).ents]
        return [SalientSpan(start, end, kind) for start, end, kind in entities if kind]
