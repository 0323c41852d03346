"""Greedy search and beam search over a mixture of passages, as in transformers.

Legend: G searches at once, P passages that a search mixes, W beams, V vocabulary, T tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from ragqa.errors import BadInput
from ragqa.models.generation.seq2seq import Conventions, DecoderRun

_NEVER = -1e9
"""Score of excluded beams, as in transformers' ``generate``; -inf would order ties differently."""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search for answers."""

    beams: int = 1
    """Number of beams; 1 is greedy search."""
    max_answer: int = 32
    """Maximum answer length in tokens, including the end but not the start token (unlike transformers)."""
    min_answer: int = 0
    """Minimum answer length in tokens, without the end."""
    length_penalty: float = 1.0
    """Exponent p in the score of a finished answer, which is log-probability / length ** p."""
    max_candidates: int = 1
    """Maximum number of candidates per question; only RAG-Sequence can have more than ``beams``."""

    def __post_init__(self) -> None:
        """Raise BadInput for values out of range."""
        if min(self.beams, self.max_answer, self.max_candidates) < 1 or not 0 <= self.min_answer < self.max_answer:
            raise BadInput(
                f"{self}: beams, max_answer and max_candidates must be at least 1, and min_answer less than max_answer"
            )


class PassageMixture:
    """Next-token probabilities of G searches; each search mixes its P passages by their priors.

    Args:
        run: decoder run over G * P encoded pairs, ordered by search.
        prior_GP: ``[G, P]`` log-probabilities of the passages.
    """

    def __init__(self, run: DecoderRun, prior_GP: Tensor) -> None:
        self.run, self.prior_GP, self.rules = run, prior_GP, run.model.conventions

    def score_next(self, tokens_GW: Tensor) -> Tensor:
        """Append a token to each beam, and score the next tokens.

        Args:
            tokens_GW: ``[G, W]`` token to append to each beam.

        Returns:
            ``[G, W, V]`` log-probabilities of the next tokens in nats.
        """
        searches, passages = self.prior_GP.shape
        rows = tokens_GW.unsqueeze(1).expand(-1, passages, -1).flatten()
        log_probs = self.run.step(rows).log_softmax(-1).view(searches, passages, tokens_GW.shape[1], -1)
        if passages == 1:
            return log_probs[:, 0]
        return (log_probs + self.prior_GP[..., None, None]).logsumexp(1)

    def reorder(self, parents_GW: Tensor) -> None:
        """Continue beam w of search g with the tokens of beam ``parents_GW[g, w]``."""
        texts = self.prior_GP.numel()
        beams = self.run.rows // texts  # 1 at the first step, where all beams are equal
        first = torch.arange(texts, device=parents_GW.device) * beams
        parents = parents_GW.clamp_max(beams - 1).repeat_interleave(self.prior_GP.shape[1], 0)
        self.run.reorder((first.unsqueeze(1) + parents).flatten())

    def select(self, searches: Tensor) -> "PassageMixture":
        """Return a mixture of some searches only; the old mixture must not be used again.

        Args:
            searches: numbers of the searches to keep.
        """
        texts = _expand_groups(searches, self.prior_GP.shape[1])
        beams = self.run.rows // self.prior_GP.numel()
        return PassageMixture(self.run.select(texts, _expand_groups(texts, beams)), self.prior_GP[searches])


def _expand_groups(groups: Tensor, size: int) -> Tensor:
    """Return the numbers of the rows in ``groups``, each of which has ``size`` rows."""
    return (groups.unsqueeze(1) * size + torch.arange(size, device=groups.device)).flatten()


@dataclass(frozen=True)
class _Beams:
    """State of G beam searches; every field is a tensor whose first dimension is G."""

    ids_GWT: Tensor
    score_GW: Tensor
    done_GWT: Tensor
    done_score_GW: Tensor
    finished_GW: Tensor
    """True where ``done_GWT`` holds a finished answer."""
    open_G: Tensor
    """True if a running beam can still beat the worst finished answer."""

    @classmethod
    def begin(cls, searches: int, search: SearchSettings, fill: int, device: torch.device) -> Self:
        ids = torch.full((searches, search.beams, search.max_answer), fill, device=device)
        score = torch.full((searches, search.beams), _NEVER, device=device)
        first = score.clone()
        first[:, 0] = 0.0  # all beams are equal at the start, so only the first one counts
        none = torch.zeros_like(score, dtype=torch.bool)
        return cls(ids, first, ids.clone(), score, none, torch.ones_like(none[:, 0]))

    def select(self, rows: Tensor) -> "_Beams":
        return _Beams(*(getattr(self, field.name)[rows] for field in fields(self)))


def apply_rules(log_probs: Tensor, step: int, rules: Conventions, search: SearchSettings) -> Tensor:
    """Return log-probabilities of next tokens, with -inf for tokens that the rules exclude.

    Args:
        log_probs: ``[..., V]`` log-probabilities of the next tokens.
        step: position of the next token in the answer, from 0.
        rules: conventions of the model.
        search: settings with the minimum and maximum answer length.

    Returns:
        ``[..., V]``; if a token is forced, it has log-probability 0 and all other tokens have -inf.
    """
    for excluded in (rules.forbidden, rules.ends if step < search.min_answer else ()):
        if excluded:
            log_probs = log_probs.index_fill(-1, log_probs.new_tensor(excluded, dtype=torch.long), -torch.inf)
    for forced, is_due in ((rules.forced_first, step == 0), (rules.forced_last, step == search.max_answer - 1)):
        if is_due and forced is not None:
            log_probs = torch.full_like(log_probs, -torch.inf)
            log_probs[..., forced] = 0.0
    return log_probs


def search_greedily(mixture: PassageMixture, search: SearchSettings) -> Iterator[tuple[Tensor, Tensor]]:
    """Search greedily and yield the next token of each search at each step.

    Args:
        mixture: probabilities of the next tokens.
        search: settings, from which only the lengths of an answer are used.

    Yields:
        The most probable token ``[G]`` of each search, including the end token, and its log-probability ``[G]`` in
        nats. After the end, tokens are padding with log-probability 0.
    """
    rules, device = mixture.rules, mixture.prior_GP.device
    token_G = torch.full((len(mixture.prior_GP),), rules.start, device=device)
    ends = torch.tensor(rules.ends, device=device)
    over_G = torch.zeros_like(token_G, dtype=torch.bool)
    for step in range(search.max_answer):
        gain_G, best_G = apply_rules(mixture.score_next(token_G[:, None]), step, rules, search)[:, 0].max(-1)
        token_G = best_G.masked_fill(over_G, rules.pad)
        yield token_G, gain_G.masked_fill(over_G, 0.0)
        over_G = over_G | torch.isin(token_G, ends)
        if over_G.all():
            return


def search_beams(mixture: PassageMixture, search: SearchSettings) -> list[list[tuple[Ids, float]]]:
    """Run beam search; return the answers of each search with their scores, best first.

    It returns the same answers as transformers' ``generate`` with ``early_stopping=False``. A search ends after
    ``max_answer`` tokens. It also ends when it has finished as many answers as it has beams, and its best running beam,
    scored at the current length, beats none of them. Ended searches are removed from the batch when they are at least
    half of it.

    Args:
        mixture: probabilities of the next tokens; it must not be used again.
        search: settings of the search.
    """
    rules, device, searches = mixture.rules, mixture.prior_GP.device, len(mixture.prior_GP)
    state = _Beams.begin(searches, search, rules.pad, device)
    ids_GWT, score_GW = state.done_GWT.clone(), state.done_score_GW.clone()
    where = torch.arange(searches, device=device)
    token_GW = torch.full((searches, 1), rules.start, device=device)  # one beam is enough while all beams are equal
    for step in range(search.max_answer):
        log_probs_GWV = apply_rules(mixture.score_next(token_GW), step, rules, search).expand(-1, search.beams, -1)
        state, parents_GW, token_GW = _advance(state, log_probs_GWV, step, rules, search)
        running, is_last = int(state.open_G.sum()), step == search.max_answer - 1
        if running <= len(where) // 2 or is_last:
            ids_GWT[where], score_GW[where] = state.done_GWT, state.done_score_GW
        if running == 0 or is_last:
            break
        mixture.reorder(parents_GW)
        if running <= len(where) // 2:
            open_ = state.open_G.nonzero()[:, 0]
            state, where, token_GW, mixture = state.select(open_), where[open_], token_GW[open_], mixture.select(open_)
    return [
        [(cut_at_end(ids, rules.ends), score) for ids, score in zip(*row, strict=True) if score > _NEVER / 10]
        for row in zip(ids_GWT.tolist(), score_GW.tolist(), strict=True)
    ]


def _advance(
    state: _Beams, log_probs_GWV: Tensor, step: int, rules: Conventions, search: SearchSettings
) -> tuple[_Beams, Tensor, Tensor]:
    """Take a step of beam search; return its state and each beam's parent and token ``[G, W]``."""
    beams, vocabulary = search.beams, log_probs_GWV.shape[-1]
    total = (log_probs_GWV + state.score_GW.unsqueeze(-1)).flatten(1)
    # Take so many candidates that ``beams`` of them can continue even if the best candidates end.
    score, place = total.topk(min(max(2, 1 + len(rules.ends)) * beams, total.shape[1]))
    parent, token = place // vocabulary, place % vocabulary
    ids = _take(state.ids_GWT, parent)
    ids[:, :, step] = token
    has_ended = torch.isin(token, token.new_tensor(rules.ends)) | (step == search.max_answer - 1)

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


def cut_at_end(ids: list[int], ends: tuple[int, ...]) -> Ids:
    """Return ``ids`` up to and including the first end token; all ``ids`` if there is none."""
    stop = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return tuple(ids[: stop + 1])
