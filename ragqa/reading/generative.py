"""Generative readers: RAG-Token, RAG-Sequence, Fusion-in-Decoder and closed book.

Legend: B questions, K passages per question.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import exp
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragqa.errors import BadInput, MissingExtra
from ragqa.models.generation.generator_kinds import GeneratorKind
from ragqa.reading.base import ALTERNATIVES, NO_PASSAGES, Decoding, RetrieverIdentity, decline
from ragqa.reading.calibration import Calibration, Evidence
from ragqa.reading.prior import Prior, make_prior
from ragqa.runtime.scorer import RAW, SPREAD
from ragqa.text import locate_answer
from ragqa.types import Alternative, Answer, Hit, Passage, Source, Span

if TYPE_CHECKING:
    from ragqa.models.generation.decoding import Candidate
    from ragqa.models.generation.generators import Generator
    from ragqa.models.generation.search import SearchSettings

MAX_PASSAGE_CHARACTERS, MAX_TITLE_CHARACTERS = 50_000, 1_000
"""Maximum length in characters of a passage and its title; a generator reads a few hundred tokens of each passage."""
_INCOMPLETE = "\ufffd"
"""Replacement character that byte-level tokenizers write for an incomplete character."""


class WrittenAnswer(NamedTuple):
    """Generated answer with its evidence, before calibration."""

    text: str
    evidence: Evidence


class GenerativeReader:
    """Reader that generates answers with torch, from passages or from memory (closed book)."""

    def __init__(
        self,
        generator: "Generator",
        calibration: Calibration,
        *,
        fingerprint: str,
        decoding: Decoding | None = None,
        device: str = "cpu",
        scored_by: RetrieverIdentity | None = None,
    ) -> None:
        """Make a reader from a generator.

        Args:
            generator: model that writes the answers.
            calibration: calibration that turns evidence into confidence.
            fingerprint: text that identifies the model.
            decoding: settings of decoding; None for greedy search. ``max_answer`` None stands for the training's.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            scored_by: retriever that scores the hits; None for the retriever used in training.

        Raises:
            BadInput: a setting of decoding is out of range, or the generator does not support it.
        """
        self._generator, self._calibration = generator.to(device).eval(), calibration
        self.kind = GeneratorKind(generator.kind)
        self.decoding = _resolve_decoding(generator, decoding or Decoding())
        self._search = _make_search(self.kind, self.decoding)
        self._fast: dict[str, bool] = {"fast": True} if self.decoding.fast else {}
        self._prior, self.warning = _choose_prior(generator, scored_by)
        self._device = device
        self.fingerprint = fingerprint

    @classmethod
    def load(
        cls, source: str | Path, kind: str | None = None, *, device: str = "cpu", **options: Any
    ) -> "GenerativeReader":
        """Load a generator from a directory or the hub, and the calibration next to it.

        Args:
            source: directory or hub name of a saved generator, a published RAG checkpoint or a plain seq2seq.
            kind: ``GeneratorKind`` of a plain seq2seq; None if the directory names its kind.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            options: ``decoding`` and ``scored_by``, as for the constructor.

        Raises:
            ArtefactError, DamagedArtefact, Mismatch: as for ``load_generator``, or the calibration is damaged.
            BadInput: as for ``load_generator`` and the constructor, or torch does not see ``device``.
            MissingExtra: torch, transformers or a package of the vocabulary is not installed.
        """
        try:
            from ragqa.models.generation.generators import fingerprint_generator, load_generator
        except ModuleNotFoundError as error:
            raise MissingExtra("a reader that is a generator", "torch") from error
        from ragqa.runtime.runner import check_device

        check_device(device)
        generator = load_generator(source, kind)
        fingerprint = f"{fingerprint_generator(source)}-{generator.kind}"
        # Without a calibration nothing is declined: p(y|x) also falls with the length of a right answer.
        calibration = Calibration.load(Path(source), threshold=0.0)
        return cls(generator, calibration, fingerprint=fingerprint, device=device, **options)

    @property
    def is_closed_book(self) -> bool:
        """True if the generator reads no passages."""
        return self._generator.template.is_closed_book

    @property
    def passages(self) -> int:
        """Number of passages per question in training, or else the default of its kind."""
        return self._generator.passages

    @property
    def threshold(self) -> float:
        """Confidence below which answers are declined by default."""
        return self._calibration.threshold

    def read(self, questions: list[str], hits: list[list[Hit]]) -> list[Answer]:
        """Return an answer for each question, in order; the arguments are as for ``Reader.read``.

        Raises:
            BadInput: the generator has no room for a passage.
        """
        rows = zip(questions, hits, self._generate(questions, hits), strict=True)
        return [
            self._make_answer(question, passages, candidates) if candidates else decline(question, [], NO_PASSAGES)
            for question, passages, candidates in rows
        ]

    def find_answers(self, questions: list[str], hits: list[list[Hit]]) -> list[list[WrittenAnswer]]:
        """Return a list for each question: the best answer with its evidence, or nothing.

        The list is empty if the question is declined. Arguments and errors are as for ``read``.
        """
        return [
            [WrittenAnswer(text, _make_evidence(best)) for best in candidates[:1] if (text := self._decode(best.ids))]
            for candidates in self._generate(questions, hits)
        ]

    def _generate(self, questions: list[str], hits: list[list[Hit]]) -> list[list["Candidate"]]:
        pairs = [pair for pair in zip(questions, hits, strict=True) if pair[1] or self.is_closed_book]
        if not pairs:
            return [[] for _ in questions]
        inputs, relevance_BK = self._make_inputs(
            [question for question, _ in pairs], [question_hits for _, question_hits in pairs]
        )
        generated = iter(self._generator.generate(inputs, relevance_BK, self._search, **self._fast))
        return [next(generated) if question_hits or self.is_closed_book else [] for question_hits in hits]

    @property
    def can_stream(self) -> bool:
        """True with greedy search, except for RAG-Sequence, which compares complete answers."""
        return self._search.beams == 1 and self.kind != GeneratorKind.RAG_SEQUENCE

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str | Answer]:
        """Yield the text of the answer in pieces, and at the end the complete ``Answer``.

        Arguments and errors are as for ``AnswerGenerator.stream``.
        """
        if not (hits or self.is_closed_book):
            yield decline(question, [], NO_PASSAGES)
            return
        inputs, relevance_BK = self._make_inputs([question], [hits])
        ids: list[int] = []
        shown = previous = ""
        steps = self._generator.stream(inputs, relevance_BK, self._search)
        while True:
            try:
                ids.append(int(next(steps)))
            except StopIteration as stop:
                (candidates,) = stop.value
                break
            text = self._decode(ids)
            # A token can change the punctuation before it or complete a character, so text is stable only if the
            # next step repeats it.
            prefix = commonprefix([previous, text])  # noqa: RUF071 (characters of a text, not parts of a path)
            stable, previous = prefix.rstrip(_INCOMPLETE), text
            if stable.startswith(shown) and stable != shown:
                yield stable[len(shown) :]
                shown = stable
        answer = self._make_answer(question, hits, candidates)
        if answer.text is not None and answer.text.startswith(shown) and answer.text != shown:
            yield answer.text[len(shown) :]
        yield answer

    def _make_inputs(self, questions: list[str], hits: list[list[Hit]]) -> tuple[Any, Any]:
        """Return the generator's inputs, and the log-prior of the passages [B, K].

        The log-prior is -inf where a question has fewer than K passages. For closed book, K is 1 and the log-prior 0.
        """
        import torch

        inputs = self._generator.make_inputs(
            questions, [[_cut_passage(hit.passage) for hit in passages] for passages in hits]
        )
        if self.is_closed_book:
            return inputs.to(self._device), torch.zeros(len(questions), 1, device=self._device)
        relevance_BK = np.full((len(hits), max(map(len, hits))), -np.inf, np.float32)
        for row, passages in zip(relevance_BK, hits, strict=True):
            row[: len(passages)] = self._prior(passages)
        return inputs.to(self._device), torch.from_numpy(relevance_BK).to(self._device)

    def _make_answer(self, question: str, hits: list[Hit], candidates: list["Candidate"]) -> Answer:
        texts = [self._decode(candidate.ids) for candidate in candidates]
        if not texts[0]:
            return decline(question, hits, "the generator wrote nothing")
        candidate_of: dict[str, Candidate] = {}
        for text, candidate in zip(texts, candidates, strict=True):
            if text:
                candidate_of.setdefault(text, candidate)
        best, *others = (
            Alternative(
                text,
                self._calibration.compute_confidence(_make_evidence(candidate)),
                self._cite(question, hits, text, candidate),
            )
            for text, candidate in candidate_of.items()
        )
        is_supported = any(source.span is not None for source in best.sources)
        unsupported = "no passages were read" if self.is_closed_book else "in none of the passages that were read"
        return Answer(
            question,
            best.text,
            candidates[0].log_prob,
            best.confidence,
            best.sources,
            tuple(others),
            supported=is_supported,
            reason=None if is_supported else unsupported,
            note=_make_note(hits),
        )

    def _decode(self, ids: Any) -> str:
        return self._generator.seq2seq.tokens.decode(ids)

    def _cite(self, question: str, hits: list[Hit], text: str, candidate: "Candidate") -> tuple[Source, ...]:
        """Return the passages as sources, by falling posterior probability; none for closed book."""
        if self.is_closed_book:
            return ()
        sources = []
        for hit, weight in zip(hits, candidate.posterior, strict=False):
            passage = _cut_passage(hit.passage)
            edges = locate_answer(passage.text, text)
            is_read = edges is not None and self._generator.can_read(question, passage, edges[1])
            sources.append(Source(hit, Span(*edges) if edges and is_read else None, weight))
        return tuple(sorted(sources, key=lambda source: -source.weight))


def _cut_passage(passage: Passage) -> Passage:
    """Cut off the end of a long passage, which no generator reads, before it is tokenized."""
    if len(passage.text) <= MAX_PASSAGE_CHARACTERS and len(passage.context) <= MAX_TITLE_CHARACTERS:
        return passage
    return replace(
        passage, text=passage.text[:MAX_PASSAGE_CHARACTERS], title=passage.context[:MAX_TITLE_CHARACTERS], headings=()
    )


def _make_note(hits: list[Hit]) -> str | None:
    if not (count := sum(len(hit.passage.text) > MAX_PASSAGE_CHARACTERS for hit in hits)):
        return None
    number = "one passage has" if count == 1 else f"{count} passages have"
    return f"{number} more than {MAX_PASSAGE_CHARACTERS:,} characters; the rest was not read"


def _choose_prior(generator: "Generator", scored_by: RetrieverIdentity | None) -> tuple[Prior, str | None]:
    """Choose the function for the log-prior of passages, by the retriever of the hits.

    RAG's prior is the softmax of the inner products of its own encoders. Scores on another scale (BM25, cosines) would
    select a single passage, or weight all passages equally. Such scores are standardized (``SPREAD``).

    Returns:
        The function, and a warning if the generator was trained with another retriever, else None.
    """
    kind, trained_with = GeneratorKind(generator.kind), generator.retriever
    if scored_by is None or not kind.uses_scores:
        return make_prior(RAW), None
    if scored_by.encoder is not None and trained_with in (None, scored_by.encoder):  # None: not recorded
        return make_prior(RAW), None
    other = f"of {scored_by.kind}" if scored_by.encoder is None else "of another dense retriever"
    return make_prior(SPREAD), (
        f"{kind} weighs passages by the inner products of the encoders that it was trained with; these scores are "
        f"{other}, so only their differences count: use an index of its own retriever"
    )


def _resolve_decoding(generator: "Generator", decoding: Decoding) -> Decoding:
    room = generator.seq2seq.max_tokens
    longest = generator.max_answer if decoding.max_answer is None else decoding.max_answer
    if decoding.fast and generator.kind != GeneratorKind.RAG_SEQUENCE:
        raise BadInput(f"fast decoding is for {GeneratorKind.RAG_SEQUENCE} only: {generator.kind} has a single search")
    if decoding.beams < 1 or longest < 2 or not 0 <= decoding.min_answer < longest:
        wrong = f"beams = {decoding.beams}, min_answer = {decoding.min_answer}, max_answer = {longest}"
        raise BadInput(f"{wrong}: at least 1 beam, 2 tokens (the last is an end), and min_answer below max_answer")
    if longest > room:
        raise BadInput(f"max_answer = {longest}: the generator writes {room} tokens at most")
    return replace(decoding, max_answer=longest)


def _make_search(kind: GeneratorKind, decoding: Decoding) -> "SearchSettings":
    from ragqa.models.generation.search import SearchSettings

    assert decoding.max_answer is not None
    count = 1 + ALTERNATIVES
    if kind != GeneratorKind.RAG_SEQUENCE:  # RAG-Sequence searches each passage, so it has more candidates than beams
        count = min(count, decoding.beams)
    return SearchSettings(decoding.beams, decoding.max_answer, decoding.min_answer, max_candidates=count)


def _make_evidence(candidate: "Candidate") -> Evidence:
    mean = candidate.log_prob / len(candidate.ids)
    return Evidence(exp(candidate.log_prob), mean, max(candidate.posterior))
