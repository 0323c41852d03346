"""Answers of generators: RAG-Token over the mixture, RAG-Sequence by the union of its passages' beams.

Legend: B questions, K passages a question, P passages that a step mixes (K or 1), G searches, W beams, C candidates,
T tokens, M positions that count, V vocabulary.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragqa.errors import BadInput
from ragqa.models.generation.search import Search, answers, beam, ended, greedy
from ragqa.models.generation.seq2seq import DecoderRun, EncoderStates, Seq2Seq
from ragqa.objectives import IGNORED, sequence_nll, token_nll

_ROOM = 1 << 26
"""Logits that are made at once, where those of a single question are not more."""
KEPT = 1 << 28
"""Keys and values, or weights of attention, that are kept at once, likewise: 1 GiB."""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """A possible answer."""

    ids: Ids
    """Its tokens, the end included."""
    log_prob: float
    """log p(y|x) in nats, as if every token were free; see ``score_candidates`` for the first one."""
    posterior: tuple[float, ...]
    """p(z|x,y) of each of the question's passages: how much of the answer is theirs; sums to 1."""


class Mixture:
    """G searches of W beams, each over P passages whose next-token probabilities are mixed by their priors."""

    def __init__(self, run: DecoderRun, prior_GP: Tensor) -> None:
        self._run, self._prior_GP = run, prior_GP

    def next(self, tokens_GW: Tensor) -> Tensor:
        """See ``search.Speaker``."""
        searches, passages = self._prior_GP.shape
        rows = tokens_GW.unsqueeze(1).expand(-1, passages, -1).flatten()
        log_probs = self._run.step(rows).log_softmax(-1).view(searches, passages, tokens_GW.shape[1], -1)
        if passages == 1:
            return log_probs[:, 0]
        return (log_probs + self._prior_GP[..., None, None]).logsumexp(1)

    def follow(self, parents_GW: Tensor) -> None:
        """See ``search.Speaker``."""
        texts = self._prior_GP.numel()
        beams = self._run.rows // texts  # 1 at first, whatever is to come
        first = torch.arange(texts, device=parents_GW.device) * beams
        parents = parents_GW.clamp_max(beams - 1).repeat_interleave(self._prior_GP.shape[1], 0)
        self._run.reorder((first.unsqueeze(1) + parents).flatten())

    def keep(self, searches: Tensor) -> "Mixture":
        """See ``search.Speaker``."""
        passages = self._prior_GP.shape[1]
        texts = _members(searches, passages)
        beams = self._run.rows // self._prior_GP.numel()
        return Mixture(self._run.keep(texts, _members(texts, beams)), self._prior_GP[searches])


def _members(groups: Tensor, size: int) -> Tensor:
    """Numbers of the members of some groups that all have ``size``."""
    return (groups.unsqueeze(1) * size + torch.arange(size, device=groups.device)).flatten()


@torch.no_grad()
def decode_token(model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: Search) -> list[list[Candidate]]:
    """RAG-Token (Lewis et al. 2020, section 2.5): one search a question, over the mixture of its K passages.

    With K = 1 that is any plain seq2seq. Candidates are ranked by the search; the posterior is the expected share of
    the answer's tokens that each passage gave.

    Args:
        states: of B * K pairs, a question's one after the other.
        relevance_BK: ``[B, K]``; -inf where a question has fewer than K passages.

    Raises:
        BadInput: a question has no passage.
    """
    scored = []
    for run, prior_BK in _portions(model, states, _prior(relevance_BK), search):
        found = _search(model, run, prior_BK, search)
        ids = [[each for each, _ in row[: search.returned]] for row in found]
        scored += score_candidates(model, run, prior_BK, ids, marginal="token")
    return scored


@torch.no_grad()
def stream_token(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: Search
) -> Generator[Tensor, None, list[list[Candidate]]]:
    """Greedy ``decode_token`` that yields the tokens ``[B]`` as they come; it returns what that does."""
    prior_BK = _prior(relevance_BK)
    run = DecoderRun(model, states)
    said = []
    for token_B, _ in greedy(Mixture(run, prior_BK), len(prior_BK), model.conventions, search, prior_BK.device):
        said.append(token_B)
        yield token_B
    rows = torch.stack(said, 1).tolist()
    ids = [[ended(row, model.conventions.ends)] for row in rows]
    return score_candidates(model, run, prior_BK, ids, marginal="token")


@torch.no_grad()
def decode_sequence(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: Search, *, fast: bool = False
) -> list[list[Candidate]]:
    """RAG-Sequence: a search for every passage, and the union of what they found, ranked by p(y|x).

    Thorough (Lewis et al. 2020, section 2.5): every candidate is scored under every passage. ``fast``: p(y|x, z) is 0
    for a candidate that the search over z did not find, and what the search says for one that it did. Raises as
    ``decode_token``.
    """
    scored = []
    for run, prior_BK in _portions(model, states, _prior(relevance_BK), search):
        found = _search(model, run, torch.zeros_like(prior_BK).view(-1, 1), search)
        there = prior_BK.isfinite().flatten().tolist()
        found = [row if real else [] for row, real in zip(found, there, strict=True)]
        passages = prior_BK.shape[1]
        per_question = [found[start : start + passages] for start in range(0, len(found), passages)]
        if fast:
            scored += [_fast(rows, prior, search) for rows, prior in zip(per_question, prior_BK.tolist(), strict=True)]
        else:
            ids = [list(dict.fromkeys(each for row in rows for each, _ in row)) for rows in per_question]
            scored += score_candidates(model, run, prior_BK, ids, marginal="sequence")
    return [sorted(row, key=lambda each: -each.log_prob)[: search.returned] for row in scored]


def _prior(relevance_BK: Tensor) -> Tensor:
    nothing = relevance_BK.isneginf().all(-1)
    if nothing.any():
        raise BadInput(f"question {int(nothing.nonzero()[0])} of the batch has no passage to answer from")
    return relevance_BK.float().log_softmax(-1)


def _portions(
    model: Seq2Seq, states: EncoderStates, prior_BK: Tensor, search: Search
) -> Iterator[tuple[DecoderRun, Tensor]]:
    """Runs over as many questions at a time as there is room for, when they are searched and when they are scored."""
    passages = prior_BK.shape[1]
    logits = passages * max(search.beams, search.longest) * model.vocabulary
    kept = 2 * model.layers * passages * states.hidden_NLD[0].numel()
    at_once = max(1, min(_ROOM // logits, KEPT // kept))
    for begin in range(0, len(prior_BK), at_once):
        own = prior_BK[begin : begin + at_once]
        yield DecoderRun(model, states[slice(begin * passages, (begin + len(own)) * passages)]), own


def _search(model: Seq2Seq, run: DecoderRun, prior_GP: Tensor, search: Search) -> list[list[tuple[Ids, float]]]:
    """Each search's answers, best first, and their scores."""
    speaker, rules = Mixture(run, prior_GP), model.conventions
    if search.beams > 1:
        return answers(*beam(speaker, len(prior_GP), rules, search, prior_GP.device), rules)
    steps = list(greedy(speaker, len(prior_GP), rules, search, prior_GP.device))
    rows = [ended(row, rules.ends) for row in torch.stack([token_G for token_G, _ in steps], 1).tolist()]
    gains = torch.stack([gain_G for _, gain_G in steps]).sum(0).tolist()
    return [[(ids, gain / len(ids) ** search.length_penalty)] for ids, gain in zip(rows, gains, strict=True)]


def _fast(rows: list[list[tuple[Ids, float]]], prior_K: list[float], search: Search) -> list[Candidate]:
    """The candidates of one question, with what each passage's own search says of them."""
    joint: dict[Ids, Tensor] = {}
    for passage, found in enumerate(rows):
        for ids, score in found:
            log_K = joint.setdefault(ids, torch.full((len(prior_K),), -torch.inf))
            log_K[passage] = score * len(ids) ** search.length_penalty + prior_K[passage]
    return [Candidate(ids, float(log_K.logsumexp(0)), tuple(log_K.softmax(0).tolist())) for ids, log_K in joint.items()]


@torch.no_grad()
def score_candidates(
    model: Seq2Seq, run: DecoderRun, prior_BK: Tensor, candidates: Sequence[Sequence[Ids]], *, marginal: str
) -> list[list[Candidate]]:
    """p(y|x) and p(z|x,y) of each question's candidates, under all its passages.

    As ``RagSequenceForGeneration`` does, a first token that stands for the beginning is not counted where all of a
    question's candidates begin with it. Unlike there, the prior counts for an answer of a single token, too.
    """
    labels_BCT = _labels(candidates, model.conventions.bos, prior_BK.device)
    gold_BCKT = _gold(model, run, labels_BCT, _pad(candidates, model.conventions.pad).to(prior_BK.device), prior_BK)
    counted, prior_BCK = labels_BCT != IGNORED, prior_BK.unsqueeze(1).expand(*labels_BCT.shape[:2], -1)
    flat = gold_BCKT.flatten(0, 1), prior_BCK.flatten(0, 1), counted.flatten(0, 1)
    if marginal == "token":
        nll = token_nll(*flat)
        shares = (gold_BCKT + prior_BCK.unsqueeze(-1)).softmax(2) * counted.unsqueeze(2)
        posterior_BCK = shares.sum(-1) / counted.sum(-1).clamp_min(1).unsqueeze(-1)
    else:
        nll = sequence_nll(*flat)
        posterior_BCK = (gold_BCKT.sum(-1) + prior_BCK).softmax(-1)
    log_prob_BC = -nll.view(labels_BCT.shape[:2])
    rows = zip(candidates, log_prob_BC.tolist(), posterior_BCK.tolist(), strict=True)
    return [[Candidate(*each[:2], tuple(each[2])) for each in zip(*row, strict=False)] for row in rows]


def _gold(model: Seq2Seq, run: DecoderRun, labels_BCT: Tensor, ids_BCT: Tensor, prior_BK: Tensor) -> Tensor:
    """``[B, C, K, T]``: log-probabilities of the labels under each passage, as many candidates at a time as fit.

    What follows the same tokens under the same passage is computed once, however many candidates begin with them.
    """
    questions, count, length = labels_BCT.shape
    passages, counted_BCT, owner_BCT = prior_BK.shape[1], labels_BCT != IGNORED, _owners(labels_BCT, ids_BCT)
    inputs_BCT = torch.cat([torch.full_like(ids_BCT[..., :1], model.conventions.start), ids_BCT[..., :-1]], -1)
    at_once = max(1, _ROOM // (questions * passages * length * model.vocabulary))
    gold_BKCT = torch.zeros(questions, passages, count, length, device=labels_BCT.device)
    number_C1 = torch.arange(count, device=labels_BCT.device).unsqueeze(-1)
    for begin in range(0, count, at_once):
        part = slice(begin, begin + at_once)
        chosen_BKCT = _under_each(((owner_BCT == number_C1) & counted_BCT)[:, part], passages)
        inputs = _under_each(inputs_BCT[:, part], passages)
        logits_MV = run.score(inputs.reshape(-1, length), chosen_BKCT.reshape(-1, length))
        total_M = logits_MV.logsumexp(-1)
        row_BKCT = (chosen_BKCT.flatten().cumsum(0) - 1).view(chosen_BKCT.shape)
        due_BKCT = _under_each(counted_BCT & (owner_BCT >= begin) & (owner_BCT < begin + at_once), passages)
        place_BKCT = _under_each((owner_BCT - begin).clamp(0, chosen_BKCT.shape[2] - 1), passages)
        row = row_BKCT.gather(2, place_BKCT)[due_BKCT]
        gold_BKCT[due_BKCT] = logits_MV[row, _under_each(labels_BCT, passages)[due_BKCT]] - total_M[row]
    return gold_BKCT.transpose(1, 2)


def _under_each(values_BCT: Tensor, passages: int) -> Tensor:
    """``[B, K, C, T]``: the same under each passage."""
    return values_BCT.unsqueeze(1).expand(-1, passages, -1, -1)


def _owners(labels_BCT: Tensor, ids_BCT: Tensor) -> Tensor:
    """``[B, C, T]``: the first candidate of the question that has a token here behind the same tokens."""
    owner_BCT = torch.zeros_like(labels_BCT)
    rows = zip(owner_BCT, labels_BCT.tolist(), ids_BCT.tolist(), strict=True)
    for owner_CT, labels, ids in rows:
        first: dict[Ids, int] = {}
        own = [
            [first.setdefault(tuple(each[:t]), c) if label[t] != IGNORED else c for t in range(len(each))]
            for c, (label, each) in enumerate(zip(labels, ids, strict=True))
        ]
        owner_CT.copy_(torch.tensor(own))
    return owner_BCT


def _labels(candidates: Sequence[Sequence[Ids]], bos: int | None, device: torch.device) -> Tensor:
    labels_BCT = _pad(candidates, IGNORED).to(device)
    for row, ids in zip(labels_BCT, candidates, strict=True):
        if all(each[0] == bos for each in ids):
            row[:, 0] = IGNORED
    return labels_BCT


def _pad(candidates: Sequence[Sequence[Ids]], fill: int) -> Tensor:
    count = max(map(len, candidates))
    length = max(len(ids) for row in candidates for ids in row)
    rows = [[[*ids, *[fill] * (length - len(ids))] for ids in row] for row in candidates]
    return torch.tensor([row + [[fill] * length] * (count - len(row)) for row in rows])
