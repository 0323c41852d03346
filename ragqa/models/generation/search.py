"""Greedy and beam search over any source of next-token probabilities, equal to ``generate`` of transformers.

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
"""Score of excluded beams, as in ``generate``; with -inf, ties would be broken in another order."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search for answers."""

    beams: int = 1
    """Number of beams; 1 is greedy search."""
    longest: int = 32
    """Maximum answer length in tokens, the end included; ``max_length`` of ``generate`` also counts the start."""
    shortest: int = 0
    """Minimum answer length in tokens before the end."""
    length_penalty: float = 1.0
    """Power of the length by which the log-probability of a finished beam is divided."""
    returned: int = 1
    """Maximum number of candidates per question; except for RAG-Sequence at most ``beams``."""

    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        if min(self.beams, self.longest, self.returned) < 1 or not 0 <= self.shortest < self.longest:
            raise BadInput(f"{self}: beams, longest and returned must be at least 1, and shortest less than longest")


class TokenScorer(Protocol):
    """Source of next-token probabilities that remembers the tokens of every beam."""

    def score_next(self, tokens_GW: Tensor) -> Tensor:
        """Append one token to each beam and return log-probabilities ``[G, W, V]`` of the next one."""
        ...

    def reorder(self, parents_GW: Tensor) -> None:
        """Continue beam w of a search from the tokens of its beam ``parents_GW[g, w]``, or of its only beam."""
        ...

    def select(self, searches: Tensor) -> "TokenScorer":
        """Return a scorer for some of the searches; this one must not be used again."""
        ...


@dataclass(frozen=True)
class _Beams:
    """State of G searches; every field is a tensor whose first dimension is G."""

    ids_GWT: Tensor
    score_GW: Tensor
    done_GWT: Tensor
    done_score_GW: Tensor
    finished_GW: Tensor
    """True where ``done_GWT`` holds a finished answer."""
    open_G: Tensor
    """True if a running beam may still beat the worst finished one."""

    @classmethod
    def begin(cls, searches: int, beams: int, longest: int, fill: int, device: torch.device) -> Self:
        ids = torch.full((searches, beams, longest), fill, device=device)
        score = torch.full((searches, beams), _NEVER, device=device)
        first = score.clone()
        first[:, 0] = 0.0  # all beams start equal, so the others are excluded
        none = torch.zeros_like(score, dtype=torch.bool)
        return cls(ids, first, ids.clone(), score, none, torch.ones_like(none[:, 0]))

    def pick(self, rows: Tensor) -> "_Beams":
        return _Beams(*(getattr(self, field.name)[rows] for field in fields(self)))


def apply_rules(log_probs: Tensor, step: int, rules: Conventions, search: SearchSettings) -> Tensor:
    """Restrict the log-probabilities ``[..., V]`` of token number ``step`` to allowed tokens."""
    if rules.never:
        log_probs = log_probs.index_fill(-1, log_probs.new_tensor(rules.never, dtype=torch.long), -torch.inf)
    if step < search.shortest:
        log_probs = log_probs.index_fill(-1, log_probs.new_tensor(rules.ends, dtype=torch.long), -torch.inf)
    for forced, is_due in ((rules.first, step == 0), (rules.last, step == search.longest - 1)):
        if is_due and forced is not None:
            log_probs = torch.full_like(log_probs, -torch.inf)
            log_probs[..., forced] = 0.0
    return log_probs


def search_greedily(
    scorer: TokenScorer, searches: int, rules: Conventions, search: SearchSettings, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the most probable token of each search ``[G]`` and its log-probability ``[G]``, step by step.

    Ends are included. After an end comes padding with log-probability 0.
    """
    token_G = torch.full((searches,), rules.start, device=device)
    ends = torch.tensor(rules.ends, device=device)
    over_G = torch.zeros_like(token_G, dtype=torch.bool)
    for step in range(search.longest):
        gain_G, best_G = apply_rules(scorer.score_next(token_G[:, None]), step, rules, search)[:, 0].max(-1)
        token_G = best_G.masked_fill(over_G, rules.pad)
        yield token_G, gain_G.masked_fill(over_G, 0.0)
        over_G = over_G | torch.isin(token_G, ends)
        if over_G.all():
            return


def search_beams(
    scorer: TokenScorer, searches: int, rules: Conventions, search: SearchSettings, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Run beam search; return ids ``[G, W, T]``, best first, and their scores ``[G, W]``.

    It equals ``generate`` with ``early_stopping=False``: finished answers compete by log-probability over length to
    the power of ``length_penalty``, and a search ends when its best running beam, at its current length, beats none of
    them. Searches that have ended leave the batch when they are half of it. ``collect_answers`` cuts at the ends.
    """
    state = _Beams.begin(searches, search.beams, search.longest, rules.pad, device)
    ids_GWT, score_GW = state.done_GWT.clone(), state.done_score_GW.clone()
    where = torch.arange(searches, device=device)
    token_GW = torch.full((searches, 1), rules.start, device=device)  # one beam suffices while all are equal
    for step in range(search.longest):
        log_probs_GWV = apply_rules(scorer.score_next(token_GW), step, rules, search).expand(-1, search.beams, -1)
        state, parents_GW, token_GW = _advance(state, log_probs_GWV, step, rules, search)
        running = int(state.open_G.sum())
        if running <= len(where) // 2 or step == search.longest - 1:
            ids_GWT[where], score_GW[where] = state.done_GWT, state.done_score_GW
        if running == 0 or step == search.longest - 1:
            break
        scorer.reorder(parents_GW)
        if running <= len(where) // 2:
            open_ = state.open_G.nonzero()[:, 0]
            state, where, token_GW, scorer = state.pick(open_), where[open_], token_GW[open_], scorer.select(open_)
    return ids_GWT, score_GW


def _advance(
    state: _Beams, log_probs_GWV: Tensor, step: int, rules: Conventions, search: SearchSettings
) -> tuple[_Beams, Tensor, Tensor]:
    """Take one step of every search; return the new state, and each beam's parent and last token ``[G, W]``."""
    beams, vocabulary = search.beams, log_probs_GWV.shape[-1]
    total = (log_probs_GWV + state.score_GW.unsqueeze(-1)).flatten(1)
    # So many candidates that ``beams`` of them continue even if the best ones end.
    score, place = total.topk(min(max(2, 1 + len(rules.ends)) * beams, total.shape[1]))
    parent, token = place // vocabulary, place % vocabulary
    ids = _take(state.ids_GWT, parent)
    ids[:, :, step] = token
    has_ended = torch.isin(token, token.new_tensor(rules.ends)) | (step == search.longest - 1)

    continuing = score + has_ended * _NEVER
    running = continuing.topk(beams).indices
    just_ended = has_ended.clone()
    just_ended[:, beams:] = False  # only the best ``beams`` candidates may finish
    length = (step + 1) ** search.length_penalty
    final = score / length + (~state.open_G.unsqueeze(1)) * _NEVER + (~just_ended) * _NEVER
    merged = torch.cat([state.done_score_GW, final], 1)
    best = merged.topk(beams).indices
    done_score, score = merged.gather(1, best), continuing.gather(1, running)
    finished = torch.cat([state.finished_GW, just_ended], 1).gather(1, best)
    done = _take(torch.cat([state.done_GWT, ids], 1), best)

    worst = torch.where(finished, done_score.min(1, keepdim=True).values, _NEVER)
    is_open = state.open_G & (score[:, :1] / length > worst).any(1)
    state = _Beams(_take(ids, running), score, done, done_score, finished, is_open)
    return state, parent.gather(1, running), token.gather(1, running)


def _take(values_GWT: Tensor, index_GW: Tensor) -> Tensor:
    return values_GWT.gather(1, index_GW.unsqueeze(-1).expand(-1, -1, values_GWT.shape[-1]))


def collect_answers(ids_GWT: Tensor, score_GW: Tensor, rules: Conventions) -> list[list[tuple[tuple[int, ...], float]]]:
    """Return the answers of each search up to their ends, with their scores, without empty ones."""
    searches = zip(ids_GWT.tolist(), score_GW.tolist(), strict=True)
    return [
        [(cut_at_end(row, rules.ends), score) for row, score in zip(rows, scores, strict=True) if score > _NEVER / 10]
        for rows, scores in searches
    ]


def cut_at_end(ids: list[int], ends: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``ids`` up to and including the first end."""
    stop = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return tuple(ids[: stop + 1])
