"""Decoding of RAG-Token (one search over all passages) and RAG-Sequence (one per passage).

Legend: B questions, K passages per question, G searches, P passages that a search mixes (K or 1), C candidates, T
tokens, M scored positions, V vocabulary.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragqa.errors import BadInput
from ragqa.models.generation.search import (
    Ids,
    PassageMixture,
    SearchSettings,
    cut_at_end,
    search_beams,
    search_greedily,
)
from ragqa.models.generation.seq2seq import DecoderRun, EncoderStates, Seq2Seq
from ragqa.objectives import IGNORED, sequence_nll, token_nll

_MAX_LOGITS = 1 << 26
"""Maximum number of logits in memory; a single question can need more."""
MAX_CACHED = 1 << 28
"""Maximum number of keys and values, or of attention weights, in memory (1 GiB); a single question can need more."""


@dataclass(frozen=True)
class Candidate:
    """Possible answer to a question."""

    ids: Ids
    """Tokens of the answer, including the end."""
    log_prob: float
    """Log-probability log p(y|x) in nats."""
    posterior: tuple[float, ...]
    """Share of each passage in the answer; sums to 1.

    It is the posterior p(z|x,y) for RAG-Sequence, the expected share of the tokens for RAG-Token, and the share of the
    attention for Fusion-in-Decoder.
    """


@torch.no_grad()
def decode_token(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: SearchSettings
) -> list[list[Candidate]]:
    """Decode RAG-Token: one search per question over the mixture of its K passages.

    Source: Lewis et al. 2020, section 2.5. With K = 1 this is plain seq2seq decoding.

    Args:
        model: the seq2seq model.
        states: B * K encoded pairs of question and passage, ordered by question.
        relevance_BK: ``[B, K]`` scores of the passages; -inf where a question has fewer than K.
        search: settings of the search.

    Returns:
        The candidates of each question, in the order of their scores in the search, best first.

    Raises:
        BadInput: a question has no passage.
    """
    scored = []
    for run, prior_BK in _split_questions(model, states, relevance_BK, search):
        answers = _search(run, prior_BK, search)
        ids = [[ids for ids, _ in row[: search.max_candidates]] for row in answers]
        scored += _score_candidates(run, prior_BK, ids, marginal="token")
    return scored


@torch.no_grad()
def stream_token(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: SearchSettings
) -> Generator[Tensor, None, list[list[Candidate]]]:
    """Yield the next token ``[B]`` of each answer at each step of greedy RAG-Token decoding.

    Arguments and errors: as for ``decode_token``, but ``search`` has one beam.

    Returns:
        The candidate of each question, as a list of one.
    """
    run, prior_BK = DecoderRun(model, states), _compute_prior(relevance_BK)
    tokens = []
    for token_B, _ in search_greedily(PassageMixture(run, prior_BK), search):
        tokens.append(token_B)
        yield token_B
    rows = torch.stack(tokens, 1).tolist()
    ids = [[cut_at_end(row, model.conventions.ends)] for row in rows]
    return _score_candidates(run, prior_BK, ids, marginal="token")


@torch.no_grad()
def decode_sequence(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: SearchSettings, *, fast: bool = False
) -> list[list[Candidate]]:
    """Decode RAG-Sequence: search each passage, and rank all candidates by p(y|x).

    Thorough decoding, the default, scores every candidate under every passage (Lewis et al. 2020, section 2.5).

    Fast decoding uses the scores of the searches: p(y|x,z) is 0 for a candidate y that the search of passage z did not
    find. Other arguments and errors: as for ``decode_token``.

    Returns:
        The candidates of each question, most probable first.
    """
    scored = []
    for run, prior_BK in _split_questions(model, states, relevance_BK, search):
        answers = iter(_search(run, torch.zeros_like(prior_BK).view(-1, 1), search))
        priors = prior_BK.tolist()  # -inf for a missing passage, whose answers are dropped below
        rows_per_question = [
            [row if prior > -torch.inf else [] for prior, row in zip(row_K, answers, strict=False)] for row_K in priors
        ]
        if fast:
            scored += [
                _merge_fast(rows, prior_K, search) for rows, prior_K in zip(rows_per_question, priors, strict=True)
            ]
        else:
            ids = [list(dict.fromkeys(ids for row in rows for ids, _ in row)) for rows in rows_per_question]
            scored += _score_candidates(run, prior_BK, ids, marginal="sequence")
    return [sorted(row, key=lambda candidate: -candidate.log_prob)[: search.max_candidates] for row in scored]


def _compute_prior(relevance_BK: Tensor) -> Tensor:
    is_empty_B = relevance_BK.isneginf().all(-1)
    if is_empty_B.any():
        raise BadInput(f"question {int(is_empty_B.nonzero()[0])} of the batch has no passage to answer from")
    return relevance_BK.float().log_softmax(-1)


def _split_questions(
    model: Seq2Seq, states: EncoderStates, relevance_BK: Tensor, search: SearchSettings
) -> Iterator[tuple[DecoderRun, Tensor]]:
    passages = relevance_BK.shape[1]
    logits = passages * max(search.beams, search.max_answer) * model.vocabulary
    cached = 2 * model.decoder_config.num_hidden_layers * passages * states.hidden_NLD[0].numel()
    at_once = max(1, min(_MAX_LOGITS // logits, MAX_CACHED // cached))
    for number, prior_BK in enumerate(_compute_prior(relevance_BK).split(at_once)):
        begin = number * at_once * passages
        yield DecoderRun(model, states[slice(begin, begin + prior_BK.numel())]), prior_BK


def _search(run: DecoderRun, prior_GP: Tensor, search: SearchSettings) -> list[list[tuple[Ids, float]]]:
    mixture = PassageMixture(run, prior_GP)
    if search.beams > 1:
        return search_beams(mixture, search)
    tokens, gains = zip(*search_greedily(mixture, search), strict=True)
    rows = [cut_at_end(row, mixture.rules.ends) for row in torch.stack(tokens, 1).tolist()]
    scores = torch.stack(gains).sum(0).tolist()
    return [[(ids, score / len(ids) ** search.length_penalty)] for ids, score in zip(rows, scores, strict=True)]


def _merge_fast(rows: list[list[tuple[Ids, float]]], prior_K: list[float], search: SearchSettings) -> list[Candidate]:
    joint: dict[Ids, Tensor] = {}
    for passage, answers in enumerate(rows):
        for ids, score in answers:
            log_K = joint.setdefault(ids, torch.full((len(prior_K),), -torch.inf))
            # The search has divided the log-probability by this power of the length.
            log_K[passage] = score * len(ids) ** search.length_penalty + prior_K[passage]
    return [Candidate(ids, float(log_K.logsumexp(0)), tuple(log_K.softmax(0).tolist())) for ids, log_K in joint.items()]


def _score_candidates(
    run: DecoderRun, prior_BK: Tensor, candidates: Sequence[Sequence[Ids]], *, marginal: str
) -> list[list[Candidate]]:
    """Compute p(y|x) and p(z|x,y) of each question's candidates under all its passages.

    If all candidates of a question begin with the beginning-of-text token, this token does not count, as in
    transformers' ``RagSequenceForGeneration``. Unlike transformers, this function also counts the prior for answers of
    a single token.
    """
    rules = run.model.conventions
    labels_BCT = _pad(candidates, IGNORED).to(prior_BK.device)
    for row_CT, answers in zip(labels_BCT, candidates, strict=True):
        if all(ids[0] == rules.bos for ids in answers):
            row_CT[:, 0] = IGNORED
    gold_BCKT = _score_labels(run, labels_BCT, _pad(candidates, rules.pad).to(prior_BK.device), prior_BK.shape[1])
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
    return [[Candidate(ids, log_prob, tuple(post)) for ids, log_prob, post in zip(*row, strict=False)] for row in rows]


def _score_labels(run: DecoderRun, labels_BCT: Tensor, ids_BCT: Tensor, passages: int) -> Tensor:
    """Return log-probabilities ``[B, C, K, T]`` of the labels under each passage.

    Candidates of a question often share their first tokens. So the distribution after a prefix is computed once per
    passage, for the first candidate with this prefix (its owner).
    """
    questions, count, length = labels_BCT.shape
    counted_BCT, owner_BCT = labels_BCT != IGNORED, _find_owners(labels_BCT, ids_BCT)
    inputs_BCT = torch.cat([torch.full_like(ids_BCT[..., :1], run.model.conventions.start), ids_BCT[..., :-1]], -1)
    at_once = max(1, _MAX_LOGITS // (questions * passages * length * run.model.vocabulary))
    gold_BKCT = torch.zeros(questions, passages, count, length, device=labels_BCT.device)
    number_C1 = torch.arange(count, device=labels_BCT.device).unsqueeze(-1)
    for begin in range(0, count, at_once):
        part = slice(begin, begin + at_once)
        chosen_BKCT = _repeat_per_passage(((owner_BCT == number_C1) & counted_BCT)[:, part], passages)
        inputs = _repeat_per_passage(inputs_BCT[:, part], passages)
        logits_MV = run.score(inputs.reshape(-1, length), chosen_BKCT.reshape(-1, length))
        total_M = logits_MV.logsumexp(-1)
        row_BKCT = (chosen_BKCT.flatten().cumsum(0) - 1).view(chosen_BKCT.shape)
        due_BKCT = _repeat_per_passage(counted_BCT & (owner_BCT >= begin) & (owner_BCT < begin + at_once), passages)
        place_BKCT = _repeat_per_passage((owner_BCT - begin).clamp(0, chosen_BKCT.shape[2] - 1), passages)
        row = row_BKCT.gather(2, place_BKCT)[due_BKCT]
        gold_BKCT[due_BKCT] = logits_MV[row, _repeat_per_passage(labels_BCT, passages)[due_BKCT]] - total_M[row]
    return gold_BKCT.transpose(1, 2)


def _repeat_per_passage(values_BCT: Tensor, passages: int) -> Tensor:
    return values_BCT.unsqueeze(1).expand(-1, passages, -1, -1)


def _find_owners(labels_BCT: Tensor, ids_BCT: Tensor) -> Tensor:
    """Return the number ``[B, C, T]`` of the first candidate with the prefix of each position."""
    owners = []
    for labels_CT, ids_CT in zip(labels_BCT.tolist(), ids_BCT.tolist(), strict=True):
        first: dict[Ids, int] = {}
        owners.append(
            [
                [first.setdefault(tuple(ids[:t]), c) if label != IGNORED else c for t, label in enumerate(labels)]
                for c, (labels, ids) in enumerate(zip(labels_CT, ids_CT, strict=True))
            ]
        )
    return torch.tensor(owners, device=labels_BCT.device)


def _pad(candidates: Sequence[Sequence[Ids]], fill: int) -> Tensor:
    """Return the ids of candidates ``[B, C, T]``, padded with ``fill``."""
    count = max(map(len, candidates))
    length = max(len(ids) for row in candidates for ids in row)
    rows = [[[*ids, *[fill] * (length - len(ids))] for ids in row] for row in candidates]
    return torch.tensor([row + [[fill] * length] * (count - len(row)) for row in rows])
