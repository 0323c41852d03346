"""Greedy and beam search over whatever says how probable each next token is, as ``generate`` of transformers does it.

Legend: G searches at once, W beams of each, V vocabulary, T tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Protocol, Self

import torch
from torch import Tensor

from ragqa.errors import BadInput
from ragqa.models.generation.seq2seq import Conventions

_NEVER = -1e9
"""Score of what is not to be, that of ``generate``: with -inf, equal ones would be taken in another order."""


@dataclass(frozen=True)
class Search:
    """How answers are looked for."""

    beams: int = 1
    """1 is greedy."""
    longest: int = 32
    """Tokens of an answer, its end included; ``max_length`` of ``generate``, which counts the start, is one more."""
    shortest: int = 0
    """Tokens that must come before the end."""
    length_penalty: float = 1.0
    """A finished beam's score is its log-probability over its length to this power."""
    returned: int = 1
    """Candidates a question, at most; without RAG-Sequence, ``beams`` at most."""

    def __post_init__(self) -> None:
        if min(self.beams, self.longest, self.returned) < 1 or not 0 <= self.shortest < self.longest:
            raise BadInput(f"{self}: beams, longest and returned are 1 or more, shortest is less than longest")


class Speaker(Protocol):
    """What is searched: it knows what each beam has said so far."""

    def next(self, tokens_GW: Tensor) -> Tensor:
        """Log-probabilities ``[G, W, V]`` of what follows when each beam has said one more token."""
        ...

    def follow(self, parents_GW: Tensor) -> None:
        """Beam w goes on from what beam ``parents_GW[g, w]`` of the same search has said, or the one that there is."""
        ...

    def keep(self, searches: Tensor) -> "Speaker":
        """A speaker for some of the searches; this one is not asked again."""
        ...


@dataclass(frozen=True)
class _Beams:
    """The state of G searches, every field a tensor whose first dimension is G."""

    said_GWT: Tensor
    score_GW: Tensor
    done_GWT: Tensor
    done_score_GW: Tensor
    finished_GW: Tensor
    """True where ``done`` holds a finished answer."""
    open_G: Tensor
    """Whether a running beam may still beat the worst finished one."""

    @classmethod
    def begin(cls, searches: int, beams: int, longest: int, fill: int, device: torch.device) -> Self:
        said = torch.full((searches, beams, longest), fill, device=device)
        score = torch.full((searches, beams), _NEVER, device=device)
        first = score.clone()
        first[:, 0] = 0.0  # all beams begin alike: one is enough
        none = torch.zeros_like(score, dtype=torch.bool)
        return cls(said, first, said.clone(), score, none, torch.ones_like(none[:, 0]))

    def pick(self, rows: Tensor) -> "_Beams":
        return _Beams(*(getattr(self, field.name)[rows] for field in fields(self)))


def force(log_probs: Tensor, step: int, rules: Conventions, search: Search) -> Tensor:
    """Log-probabilities ``[..., V]`` of token number ``step`` by what is demanded of it."""
    if rules.never:
        log_probs = log_probs.index_fill(-1, log_probs.new_tensor(rules.never, dtype=torch.long), -torch.inf)
    if step < search.shortest:
        log_probs = log_probs.index_fill(-1, log_probs.new_tensor(rules.ends, dtype=torch.long), -torch.inf)
    for demanded, due in ((rules.first, step == 0), (rules.last, step == search.longest - 1)):
        if due and demanded is not None:
            log_probs = torch.full_like(log_probs, -torch.inf)
            log_probs[..., demanded] = 0.0
    return log_probs


def greedy(
    speaker: Speaker, searches: int, rules: Conventions, search: Search, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """The most probable token of each search ``[G]`` and its log-probability ``[G]``, step by step.

    The ends are included; behind an end there is padding, of log-probability 0.
    """
    token_G = torch.full((searches,), rules.start, device=device)
    ends = torch.tensor(rules.ends, device=device)
    over_G = torch.zeros_like(token_G, dtype=torch.bool)
    for step in range(search.longest):
        gain_G, best_G = force(speaker.next(token_G[:, None]), step, rules, search)[:, 0].max(-1)
        token_G = best_G.masked_fill(over_G, rules.pad)
        yield token_G, gain_G.masked_fill(over_G, 0.0)
        over_G = over_G | torch.isin(token_G, ends)
        if over_G.all():
            return


def beam(
    speaker: Speaker, searches: int, rules: Conventions, search: Search, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Beam search: ids ``[G, W, T]``, best first, and their scores ``[G, W]``; see ``answers`` for their ends.

    ``generate`` with ``early_stopping=False``: finished answers compete by log-probability over length to the power
    of ``length_penalty``, and a search is over when its best running beam, at its length so far, beats none of them.
    Searches that are over are left out of the batch once they are half of it.
    """
    state = _Beams.begin(searches, search.beams, search.longest, rules.pad, device)
    ids_GWT, score_GW = state.done_GWT.clone(), state.done_score_GW.clone()
    where = torch.arange(searches, device=device)
    token_GW = torch.full((searches, 1), rules.start, device=device)  # all beams begin alike: one speaks for them
    for step in range(search.longest):
        log_probs_GWV = force(speaker.next(token_GW), step, rules, search).expand(-1, search.beams, -1)
        state, parents_GW, token_GW = _advance(state, log_probs_GWV, step, rules, search)
        running = int(state.open_G.sum())
        if running <= len(where) // 2 or step == search.longest - 1:
            ids_GWT[where], score_GW[where] = state.done_GWT, state.done_score_GW
        if running == 0 or step == search.longest - 1:
            break
        speaker.follow(parents_GW)
        if running <= len(where) // 2:
            kept = state.open_G.nonzero()[:, 0]
            state, where, token_GW, speaker = state.pick(kept), where[kept], token_GW[kept], speaker.keep(kept)
    return ids_GWT, score_GW


def _advance(
    state: _Beams, log_probs_GWV: Tensor, step: int, rules: Conventions, search: Search
) -> tuple[_Beams, Tensor, Tensor]:
    """One step of every search: the state after it, each beam's parent and its last token ``[G, W]``."""
    beams, vocabulary = search.beams, log_probs_GWV.shape[-1]
    total = (log_probs_GWV + state.score_GW.unsqueeze(-1)).flatten(1)
    # As many as go on for sure, even where the best of each beam ends.
    score, place = total.topk(min(max(2, 1 + len(rules.ends)) * beams, total.shape[1]))
    parent, token = place // vocabulary, place % vocabulary
    said = _take(state.said_GWT, parent)
    said[:, :, step] = token
    ended = torch.isin(token, token.new_tensor(rules.ends)) | (step == search.longest - 1)

    lasting = score + ended * _NEVER
    running = lasting.topk(beams).indices
    just = ended.clone()
    just[:, beams:] = False  # those behind only stand by
    length = (step + 1) ** search.length_penalty
    final = score / length + (~state.open_G.unsqueeze(1)) * _NEVER + (~just) * _NEVER
    merged = torch.cat([state.done_score_GW, final], 1)
    best = merged.topk(beams).indices
    done_score, score = merged.gather(1, best), lasting.gather(1, running)
    finished = torch.cat([state.finished_GW, just], 1).gather(1, best)
    done = _take(torch.cat([state.done_GWT, said], 1), best)

    worst = torch.where(finished, done_score.min(1, keepdim=True).values, _NEVER)
    still = state.open_G & (score[:, :1] / length > worst).any(1)
    state = _Beams(_take(said, running), score, done, done_score, finished, still)
    return state, parent.gather(1, running), token.gather(1, running)


def _take(values_GWT: Tensor, index_GW: Tensor) -> Tensor:
    return values_GWT.gather(1, index_GW.unsqueeze(-1).expand(-1, -1, values_GWT.shape[-1]))


def answers(ids_GWT: Tensor, score_GW: Tensor, rules: Conventions) -> list[list[tuple[tuple[int, ...], float]]]:
    """Each search's answers up to their ends, with their scores; places that none came to are left out."""
    found = zip(ids_GWT.tolist(), score_GW.tolist(), strict=True)
    return [
        [(ended(row, rules.ends), score) for row, score in zip(rows, scores, strict=True) if score > _NEVER / 10]
        for rows, scores in found
    ]


def ended(ids: list[int], ends: tuple[int, ...]) -> tuple[int, ...]:
    """``ids`` up to the first end, which is included."""
    stop = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return tuple(ids[: stop + 1])
