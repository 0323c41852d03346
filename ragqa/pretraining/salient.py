"""Salient spans: the names, dates and numbers whose masking makes a model need its retriever.

Guu et al. 2020 (REALM), section 3.4: names by a tagger trained on CoNLL-2003, dates by regular expression. Numbers are
ours. ``RuleTagger`` needs nothing but the text; ``SpacyTagger`` needs a model of spaCy's. What the rules find and miss
was measured on labelled sentences (docs/results.md).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ragqa.errors import BadInput, MissingExtra
from ragqa.pretraining.tagger.dates import find_dates
from ragqa.pretraining.tagger.lexicon import Lexicon
from ragqa.pretraining.tagger.names import find_names
from ragqa.pretraining.tagger.numbers import find_numbers
from ragqa.pretraining.tagger.works import find_works

KINDS = ("name", "date", "number")
_NAMES = "PERSON PER NORP FAC ORG GPE LOC PRODUCT EVENT WORK_OF_ART LAW LANGUAGE MISC"
_NUMBERS = "CARDINAL ORDINAL PERCENT QUANTITY MONEY"
_OF_SPACY = dict.fromkeys(_NAMES.split(), "name") | dict.fromkeys(_NUMBERS.split(), "number") | {"DATE": "date"}
_IDLE = ["tagger", "parser", "attribute_ruler", "lemmatizer"]


@dataclass(frozen=True, slots=True)
class SalientSpan:
    """Characters ``start`` to ``end`` of a text; never none of them."""

    start: int
    end: int
    kind: str
    """One of KINDS."""


class Tagger(Protocol):
    """What finds salient spans."""

    def spans(self, text: str) -> list[SalientSpan]:
        """The salient spans of ``text``, in order and apart from each other."""
        ...


class RuleTagger:
    """Finds salient spans of English by rule, the same in every run and process; nothing is loaded or downloaded.

    Args:
        titles: the corpus's own titles: which phrases are names, and which words have a capital in them. Six million
            take 98 MB, and 507 MB while they are learnt.
        texts: a sample of the corpus, some thousand articles: which words it writes in lower case, so that fewer are
            taken for names where a sentence begins.
    """

    def __init__(self, titles: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
        self._lexicon = Lexicon(titles, texts)

    def spans(self, text: str) -> list[SalientSpan]:
        """The salient spans of ``text``, in order and apart from each other."""
        found: list[SalientSpan] = []
        for kind in ("work", "date", "name", "number"):
            here = list(self._found(kind, _blanked(text, found)))
            found = sorted([*found, *here], key=lambda span: span.start)
        return found

    def _found(self, kind: str, text: str) -> Iterator[SalientSpan]:
        match kind:
            case "work":
                ranges = find_works(text, self._lexicon)
            case "date":
                ranges = find_dates(text)
            case "name":
                ranges = find_names(text, self._lexicon)
            case _:
                ranges = find_numbers(text)
        for start, end in ranges:
            yield SalientSpan(start, end, "name" if kind == "work" else kind)


def _blanked(text: str, spans: list[SalientSpan]) -> str:
    """The text without what stands in the spans, so that nothing is found there again."""
    pieces, at = [], 0
    for span in spans:
        pieces += [text[at : span.start], "\0" * (span.end - span.start)]
        at = span.end
    return "".join([*pieces, text[at:]])


class SpacyTagger:
    """Finds salient spans with a model of spaCy's that is installed; ``model`` is its name or path.

    spaCy's dates include durations, and its quantities their unit.

    Raises MissingExtra without spaCy, BadInput without the model.
    """

    def __init__(self, model: str = "en_core_web_sm") -> None:
        try:
            import spacy
        except ImportError:
            raise MissingExtra("tagging with spaCy", "spacy") from None
        try:
            self._model: Any = spacy.load(model, exclude=_IDLE)
        except OSError:
            raise BadInput(
                f"spaCy has no model {model!r} here: python -m spacy download {model}, or take the tagger by rule"
            ) from None

    def spans(self, text: str) -> list[SalientSpan]:
        """The salient spans of ``text``, in order and apart from each other."""
        found = [(e.start_char, e.end_char, _OF_SPACY.get(e.label_)) for e in self._model(text).ents]
        return [SalientSpan(start, end, kind) for start, end, kind in found if kind]
