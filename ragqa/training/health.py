"""Figures of retrieval in each training step, and alarms if retrieval collapses.

A retriever that learns only from its reader can collapse: it returns the same passages for every question, or the
reader ignores the passages, so that the retriever learns nothing more. The loss alone does not show a collapse.

Legend: B texts, K candidate passages (if the null passage is one, it is the last), M masked positions.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

WINDOW = 50
"""Number of steps over which figures are averaged; averages raise no alarms before so many steps."""
MIN_DISTINCT = 0.1
"""Smallest healthy value of the figure ``distinct``."""
MAX_NULL = 0.95
"""Largest healthy prior probability of the null passage."""
MAX_ENTROPY = 0.98
"""Largest healthy entropy of the prior, as a share of the entropy of a uniform prior."""
MIN_RECALL = 0.5
"""Smallest healthy recall, as a share of the best recall so far."""
MAX_LOSS_USED = 0.9
"""Largest ratio of losses, with passages to without, at which passages count as used."""
MAX_LOSS_USEFUL = 0.98
"""Largest ratio of losses, with passages to without, at which the retriever learns more than noise."""
MEMORISED = 0.5
"""Probability of a training answer (geometric mean) above which the answers may be memorised."""
MIN_GENERALISED = 0.4
"""Smallest healthy ratio of held-out accuracy to the probability of training answers."""


def compute_passage_utility(gold_BKM: Tensor, alone_B1M: Tensor, counted_BM: Tensor) -> Tensor:
    """Return the retrieval utility RU(z|x) = log p(y|z,x) - log p(y|∅,x) in nats [B, K].

    Source: REALM, section 5. Arguments: as for ``measure_retrieval``.
    """
    return ((gold_BKM - alone_B1M) * counted_BM.unsqueeze(1)).sum(-1)


def measure_retrieval(
    gold_BKM: Tensor,
    alone_B1M: Tensor,
    relevance_BK: Tensor,
    counted_BM: Tensor,
    rows_BK: np.ndarray,
    *,
    has_null: bool,
) -> dict[str, float]:
    """Return figures of the retrieval in a training step.

    The caller adds ``nll`` and ``nll_alone``, the losses of its recipe with and without retrieval.

    Args:
        gold_BKM: log-probabilities of the masked tokens with each passage.
        alone_B1M: log-probabilities of the masked tokens with the null passage only, that is, without retrieval.
        relevance_BK: scores of the passages by the encoders in training; their softmax is the prior p(z|x).
        counted_BM: bool, true at positions that count.
        rows_BK: rows of the passages in the index; negative where there is no passage.
        has_null: True if the last candidate is the null passage.

    Returns:
        - ``entropy``: mean entropy of p(z|x) as a share of log K
        - ``distinct``: from 0 if all texts have the same passages, to 1 if no two texts share a passage
        - ``utility``: mean of the retrieval utility RU(z|x) under p(z|x), without the null passage, in nats
        - ``utility_top``: mean of RU(z|x) of the most probable passage other than the null passage, in nats
        - ``null``: mean of p(z|x) of the null passage, if it is a candidate
    """
    with torch.no_grad():
        prior_BK = relevance_BK.float().softmax(-1)
        entropy = -(prior_BK * prior_BK.clamp_min(1e-9).log()).sum(-1).mean().item()
        passages = slice(None, -1 if has_null else None)
        weights_BK = prior_BK[:, passages]
        gains_BK = compute_passage_utility(gold_BKM[:, passages], alone_B1M, counted_BM)
        gain_B = (gains_BK * weights_BK).sum(-1) / weights_BK.sum(-1).clamp_min(1e-9)
        row = {
            "entropy": entropy / math.log(max(2, relevance_BK.shape[1])),
            "distinct": _measure_distinct(rows_BK[:, passages]),
            "utility": gain_B.mean().item(),
            "utility_top": gains_BK.gather(1, weights_BK.argmax(-1, keepdim=True)).mean().item(),
        }
        return {**row, "null": prior_BK[:, -1].mean().item()} if has_null else row


def _measure_distinct(rows_BK: np.ndarray) -> float:
    """Return the number of different passages, scaled so that its possible range is 0 to 1."""
    counts_B = (rows_BK >= 0).sum(-1)
    fewest, most = int(counts_B.max(initial=0)), int(counts_B.sum())
    return (len(np.unique(rows_BK[rows_BK >= 0])) - fewest) / (most - fewest) if most > fewest else 1.0


@dataclass
class Health:
    """Monitor of the figures of the last ``WINDOW`` steps.

    An alarm is raised again only after its condition has ended.
    """

    _steps: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _best: float = 0.0
    _raised: set[str] = field(default_factory=set)

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> "Health":
        """Restore the monitor from the result of ``to_state``; None makes a new one."""
        if state is None:
            return cls()
        return cls(deque(state["steps"], WINDOW), state["best"], set(state["raised"]))

    def to_state(self) -> dict[str, Any]:
        """Return the state as JSON values, for a checkpoint."""
        return {"steps": list(self._steps), "best": self._best, "raised": sorted(self._raised)}

    def check_step(self, row: dict[str, float], *, retriever_steps: int = 0) -> list[str]:
        """Record the figures of a step and return new alarms, one line each.

        There are no alarms in the first ``WINDOW - 1`` steps, or without retrieval.

        Args:
            row: result of ``measure_retrieval`` with ``nll`` and ``nll_alone``; only ``nll`` without retrieval.
            retriever_steps: number of steps in which the retriever has learned from the reader; from ``WINDOW`` on, a
                ratio of the losses above ``MAX_LOSS_USEFUL`` raises an alarm.
        """
        self._steps.append(row)
        if len(self._steps) < WINDOW or "entropy" not in row:
            return []
        mean = {name: sum(step[name] for step in self._steps) / WINDOW for name in row}
        null = mean.get("null", 0)
        loss = self._compare_losses() if retriever_steps >= WINDOW else 0.0
        return [
            *self._raise_alarm(
                "distinct",
                mean["distinct"] < MIN_DISTINCT,
                f"the distinctness of the passages is only {mean['distinct']:.0%}: all texts get the same passages",
            ),
            *self._raise_alarm(
                "null", null > MAX_NULL, f"the null passage has {null:.0%} of the weight: passages are not used"
            ),
            *self._raise_alarm(
                "entropy",
                mean["entropy"] > MAX_ENTROPY,
                f"the entropy of p(z|x) is {mean['entropy']:.1%} of its maximum: no passage is preferred",
            ),
            *self._raise_alarm(
                "useless",
                loss > MAX_LOSS_USEFUL,
                f"the retriever learns, but with passages the loss is {loss:.1%} of that without: it follows noise",
            ),
        ]

    def check_recall(self, recall: float, questions: int) -> list[str]:
        """Record the recall on held-out questions and return new alarms.

        An alarm is due if the recall has fallen below ``MIN_RECALL`` of the best so far, and by more than two standard
        errors.

        Args:
            recall: share of questions with an answer among the hits, from 0 to 1.
            questions: number of held-out questions.
        """
        self._best = max(self._best, recall)
        spread = 2 * math.sqrt(sum(share * (1 - share) for share in (recall, self._best)) / questions)
        has_fallen = recall < min(MIN_RECALL * self._best, self._best - spread)
        return self._raise_alarm("recall", has_fallen, f"recall has fallen to {recall:.3f} from {self._best:.3f}")

    def check_passages_used(self) -> list[str]:
        """Return an alarm in a list if passages lower the loss too little, or an empty list.

        The limit is ``MAX_LOSS_USED``. Call this method before adding a loss that needs useful passages.
        """
        if not self._steps:
            return []
        loss = self._compare_losses()
        return self._raise_alarm(
            "unused",
            loss > MAX_LOSS_USED,
            f"with passages the loss is {loss:.0%} of that without: they are not used yet, so a loss added now will "
            "be trained without them",
        )

    def check_answers(self, accuracy: float, *, reads_passages: bool = True) -> list[str]:
        """Return an alarm in a list if training answers are memorised, or an empty list.

        An alarm is due if the generator gives training answers a probability above ``MEMORISED``, but answers few
        held-out questions right (``MIN_GENERALISED``). The ``nll`` of the recorded steps must be per answer.

        Args:
            accuracy: share of held-out questions that were answered right, from 0 to 1.
            reads_passages: True if the generator reads passages; the alarm then adds that it hardly uses them.
        """
        if not self._steps:
            return []
        probability = math.exp(-sum(step["nll"] for step in self._steps) / len(self._steps))
        return self._raise_alarm(
            "memorised",
            probability > MEMORISED and accuracy < MIN_GENERALISED * probability,
            f"training answers have probability {probability:.2f}, but only {accuracy:.1%} of the held-out questions "
            f"are answered right: answers are memorised{', passages are hardly read' if reads_passages else ''}",
        )

    def _compare_losses(self) -> float:
        nll, alone = (sum(step[name] for step in self._steps) for name in ("nll", "nll_alone"))
        return nll / max(alone, 1e-9)

    def _raise_alarm(self, name: str, is_due: bool, message: str) -> list[str]:
        is_new = is_due and name not in self._raised
        (self._raised.add if is_due else self._raised.discard)(name)
        return [message] if is_new else []
