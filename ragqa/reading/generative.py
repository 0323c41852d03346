"""Readers that write their answers: RAG-Token, RAG-Sequence, Fusion-in-Decoder, and the closed book.

Legend: B questions, K passages a question.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragqa.errors import BadInput
from ragqa.reading.base import NOTHING_FOUND, Decoding
from ragqa.reading.calibration import Calibration, Evidence
from ragqa.reading.prior import prior_of
from ragqa.runtime.scorer import RAW, SPREAD
from ragqa.text import occurrence
from ragqa.types import Alternative, Answer, Hit, Source, Span

if TYPE_CHECKING:
    from ragqa.models.generation.decoding import Candidate
    from ragqa.models.generation.generators import Generator
    from ragqa.models.generation.search import Search
_NOWHERE = "in none of the passages that were read"
_HALF = "\ufffd"
"""What bytes say that are no character yet."""
_EMPTY = "the generator wrote nothing"


@dataclass(frozen=True)
class Written:
    """An answer that was written, before anybody says how sure it is."""

    text: str
    evidence: Evidence


class GenerativeReader:
    """Writes answers from passages, or from nothing but what it learned; runs in torch."""

    def __init__(
        self,
        generator: "Generator",
        calibration: Calibration,
        *,
        fingerprint: str,
        decoding: Decoding | None = None,
        alternatives: int = 4,
        device: str = "cpu",
    ) -> None:
        """Raises BadInput where the generator cannot decode so."""
        self._generator, self._calibration = generator.to(device).eval(), calibration
        self.decoding = _decoding(generator, decoding or Decoding())
        self._search = _search(generator.kind, self.decoding, alternatives)
        self._fast: dict[str, bool] = {"fast": True} if self.decoding.fast else {}
        self._prior, self._device = prior_of(RAW), device
        self.fingerprint = fingerprint

    @classmethod
    def load(
        cls, source: str | Path, kind: str | None = None, *, device: str = "cpu", **options: Any
    ) -> "GenerativeReader":
        """The generator in a directory or on the hub, with the calibration that lies beside it.

        Args:
            source: see ``models.generators.load_generator``.
            kind: rag-token, rag-sequence, fid or closed-book, where the directory does not say it.
            device: where it runs.
            options: of the constructor.

        Raises:
            ArtefactError, DamagedArtefact, BadInput: as ``load_generator``.
        """
        from ragqa.models.generation.generators import identity, load_generator
        from ragqa.runtime.runner import check_device

        check_device(device)
        generator = load_generator(source, kind)
        fingerprint = f"{identity(source)}-{generator.kind}"
        # p(y|x) of a right answer falls with its length, so where nothing was fitted nothing is declined.
        calibration = Calibration.load(Path(source), threshold=0.0)
        return cls(generator, calibration, fingerprint=fingerprint, device=device, **options)

    @property
    def closed(self) -> bool:
        """Whether it reads no passages."""
        return self._generator.template.closed

    @property
    def passages(self) -> int:
        """Passages of a question that it was trained with."""
        return self._generator.passages

    @property
    def threshold(self) -> float:
        """Of its calibration."""
        return self._calibration.threshold

    def weighs(self, retriever: str, encoder: str | None) -> str | None:
        """Be told whose scores its hits have; a line where they are not those that it learned with.

        The prior of RAG is the softmax of inner products of the towers that it was trained with. Scores of another
        scale, as of BM25 or of cosines, would make it a choice of one passage or none at all: of them only the
        distances to the best count, in standard deviations (``SPREAD``).
        """
        kind, own = self._generator.kind, self._generator.retriever
        if not kind.startswith("rag-") or (retriever == "dense" and own in (None, encoder)):
            return None
        self._prior = prior_of(SPREAD)
        other = "of another dense retriever" if retriever == "dense" else f"of {retriever}"
        return (
            f"{kind} weighs passages by the inner products of the towers that it was trained with; these scores are "
            f"{other}, and only their distances count: better ask an index of its own retriever"
        )

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """One answer a question, in order; one without hits is declined, unless the book is closed."""
        return [
            self._answer(question, found, candidates) if candidates else declined(question)
            for question, found, candidates in zip(questions, hits, self._candidates(questions, hits), strict=True)
        ]

    def find(self, questions: list[str], hits: list[list[Hit]]) -> list[list["Written"]]:
        """What ``read`` says to each question, and what speaks for it; nothing where it is declined."""
        return [
            [Written(text, _evidence(each)) for each in candidates[:1] if (text := self._text(each.ids))]
            for candidates in self._candidates(questions, hits)
        ]

    def _candidates(self, questions: list[str], hits: list[list[Hit]]) -> list[list["Candidate"]]:
        """None where there is nothing to read."""
        able = [row for row, found in enumerate(hits) if found or self.closed]
        found: list[list[Candidate]] = [[] for _ in questions]
        if able:
            inputs, relevance_BK = self._inputs([questions[row] for row in able], [hits[row] for row in able])
            written = self._generator.generate(inputs, relevance_BK, self._search, **self._fast)
            for row, candidates in zip(able, written, strict=True):
                found[row] = candidates
        return found

    @property
    def streams(self) -> bool:
        """Whether it can say an answer while it writes it: greedily, and not by RAG-Sequence, which compares first."""
        return self._search.beams == 1 and self._generator.kind != "rag-sequence"

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Pieces of the answer as they are written, then the answer.

        A piece is said when the next token has left it as it was: a mark or half of a character might not.
        """
        if not (hits or self.closed):
            yield declined(question)
            return
        inputs, relevance_BK = self._inputs([question], [hits])
        ids: list[int] = []
        said = before = ""
        steps = self._generator.stream(inputs, relevance_BK, self._search)
        while True:
            try:
                ids.append(int(next(steps)))
            except StopIteration as stop:
                (candidates,) = stop.value
                break
            text = self._text(ids)
            same, before = _beginning(before, text).rstrip(_HALF), text
            if same.startswith(said) and same != said:
                yield same[len(said) :]
                said = same
        answer = self._answer(question, hits, candidates)
        if answer.text is not None and answer.text.startswith(said) and answer.text != said:
            yield answer.text[len(said) :]
        yield answer

    def _inputs(self, questions: list[str], hits: list[list[Hit]]) -> tuple[Any, Any]:
        """What the generator reads, and relevance ``[B, K]``, -inf where a question has fewer passages."""
        import torch

        inputs = self._generator.inputs(questions, [[hit.passage for hit in found] for found in hits])
        if self.closed:
            return inputs.to(self._device), torch.zeros(len(questions), 1, device=self._device)
        relevance_BK = np.full((len(hits), max(map(len, hits))), -np.inf, np.float32)
        for row, found in zip(relevance_BK, hits, strict=True):
            row[: len(found)] = self._prior(found)
        return inputs.to(self._device), torch.from_numpy(relevance_BK).to(self._device)

    def _answer(self, question: str, hits: list[Hit], candidates: list["Candidate"]) -> Answer:
        texts = [self._text(each.ids) for each in candidates]
        if not texts[0]:
            return declined(question, hits)
        best = candidates[0]
        sources = self._sources(question, hits, texts[0], best)
        supported = any(source.span is not None for source in sources)
        return Answer(
            question,
            texts[0],
            best.log_prob,
            self._confidence(best),
            sources,
            tuple(
                Alternative(text, self._confidence(each), self._sources(question, hits, text, each))
                for text, each in self._others(texts, candidates)
            ),
            supported=supported,
            reason=None if supported else "no passages were read" if self.closed else _NOWHERE,
        )

    def _others(self, texts: list[str], candidates: list["Candidate"]) -> list[tuple[str, "Candidate"]]:
        """The runners-up, each text once."""
        first = {text: each for text, each in reversed(list(zip(texts, candidates, strict=True))) if text}
        return [(text, first[text]) for text in dict.fromkeys(texts[1:]) if text and text != texts[0]]

    def _text(self, ids: Any) -> str:
        return self._generator.seq2seq.tokens.text(ids)

    def _sources(self, question: str, hits: list[Hit], text: str, candidate: "Candidate") -> tuple[Source, ...]:
        """The passages, those first that bear most of the answer."""
        if self.closed:
            return ()
        sources = [
            Source(hit, self._span(question, hit, text), weight)
            for hit, weight in zip(hits, candidate.posterior, strict=False)
        ]
        return tuple(sorted(sources, key=lambda source: -source.weight))

    def _span(self, question: str, hit: Hit, text: str) -> Span | None:
        """Where the answer stands first, if that much of the passage was read."""
        found = occurrence(hit.passage.text, text)
        return Span(*found) if found and self._generator.reads(question, hit.passage, found[1]) else None

    def _confidence(self, candidate: "Candidate") -> float:
        return self._calibration.confidence(_evidence(candidate))


def _decoding(generator: "Generator", wanted: Decoding) -> Decoding:
    """What is wanted, with what the generator was trained with in place of None."""
    room = generator.seq2seq.max_tokens
    longest = generator.max_answer if wanted.max_answer is None else wanted.max_answer
    if wanted.fast and generator.kind != "rag-sequence":
        raise BadInput(f"fast decoding is for rag-sequence; a {generator.kind} has but one search: leave it out")
    if wanted.beams < 1 or longest < 2 or not 0 <= wanted.min_answer < longest:
        wrong = f"beams = {wanted.beams}, min_answer = {wanted.min_answer}, max_answer = {longest}"
        raise BadInput(f"{wrong}: at least 1 beam, 2 tokens (the last is an end), and min_answer below max_answer")
    if longest > room:
        raise BadInput(f"max_answer = {longest}: the generator writes {room} tokens at most")
    return replace(wanted, max_answer=longest)


def _search(kind: str, decoding: Decoding, alternatives: int) -> "Search":
    """RAG-Sequence has the answers of all passages to choose from, however many beams look for each."""
    from ragqa.models.generation.search import Search

    assert decoding.max_answer is not None
    return Search(
        beams=decoding.beams,
        longest=decoding.max_answer,
        shortest=decoding.min_answer,
        returned=1 + alternatives if kind == "rag-sequence" else min(1 + alternatives, decoding.beams),
    )


def _beginning(one: str, other: str) -> str:
    """What both begin with."""
    apart = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(apart, min(len(one), len(other)))]


def _evidence(candidate: "Candidate") -> Evidence:
    mean = candidate.log_prob / len(candidate.ids)
    return Evidence(exp(candidate.log_prob), mean, max(candidate.posterior))


def declined(question: str, hits: list[Hit] | None = None) -> Answer:
    """No answer: there was nothing to read, or with ``hits`` nothing was written."""
    sources = tuple(Source(hit, None, 0.0) for hit in hits or ())
    reason = NOTHING_FOUND if hits is None else _EMPTY
    return Answer(question, None, float("-inf"), 0.0, sources, supported=None, reason=reason)
