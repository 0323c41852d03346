"""Whether retrieval is still alive while it is trained: figures of every step, and alarms.

A retriever that learns only from its reader can collapse: it gives every question the same passages, or the reader
stops looking at them, and then nothing teaches it any more. The loss alone does not tell.

Legend: B texts, K passages with the null passage last, M masked positions.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ragqa.objectives import marginal_nll

WINDOW = 50
"""Steps over which figures are averaged before an alarm is raised."""
DISTINCT, NULL, SPREAD, FALL = 0.1, 0.95, 0.98, 0.5
"""Limits: least share of passages that texts do not have in common, most weight of the null passage, most entropy, as a
share of that of an even distribution, and the part of its best value that recall may fall to, if that is more than two
standard errors."""
USED, USELESS = 0.9, 0.98
"""Passages are used where the loss with them is no more than this part of the loss without, and of no use where it is
more than that one."""
HEART, HELD_OUT = 0.5, 0.4
"""An answer is known by heart that has so much probability in training, where of held-out ones less than that part of
it is right."""


def utility(gold_BKM: Tensor, alone_B1M: Tensor, counted_BM: Tensor) -> Tensor:
    """RU(z|x) = log p(y|z,x) - log p(y|∅,x) [B, K] of each passage (REALM, section 5), in nats."""
    return ((gold_BKM - alone_B1M) * counted_BM.unsqueeze(1)).sum(-1)


def figures(
    gold_BKM: Tensor,
    alone_B1M: Tensor,
    relevance_BK: Tensor,
    counted_BM: Tensor,
    rows_BK: np.ndarray,
    *,
    null: bool,
    marginal: Literal["token", "sequence"] = "token",
) -> dict[str, float]:
    """What a step says of retrieval.

    ``entropy``: of p(z|x), as a share of log K. ``distinct``: 1 where no two texts were given the same passage, 0
    where all were given the same ones, so that it means the same in batches of any size; 1 for a single text.
    ``nll_alone``: the loss, by the same ``marginal``, with the null passage only (``alone_B1M``), so without
    retrieval. ``utility``: the mean of RU(z|x) by p(z|x); ``utility_top``: that of the first passage. Where the null
    passage is the last candidate, ``null`` is its p(z|x). Negative rows stand for no passage.
    """
    with torch.no_grad():
        prior_BK = relevance_BK.float().softmax(-1)
        entropy = -(prior_BK * prior_BK.clamp_min(1e-9).log()).sum(-1).mean().item()
        passages = slice(None, -1 if null else None)
        found, weights_BK = rows_BK[:, passages], prior_BK[:, passages]
        gains_BK = utility(gold_BKM[:, passages], alone_B1M, counted_BM)
        gain = (gains_BK * weights_BK).sum(-1) / weights_BK.sum(-1).clamp_min(1e-9)
        certain = torch.zeros_like(prior_BK[:, :1])
        row = {
            "entropy": entropy / math.log(max(2, relevance_BK.shape[1])),
            "distinct": _apart(found),
            "nll_alone": marginal_nll(alone_B1M, certain, counted_BM, marginal=marginal).item(),
            "utility": gain.mean().item(),
            "utility_top": gains_BK.gather(1, weights_BK.argmax(-1, keepdim=True)).mean().item(),
        }
        return {**row, "null": prior_BK[:, -1].mean().item()} if null else row


def _apart(rows_BK: np.ndarray) -> float:
    """Different passages among those that were retrieved, from the fewest that they could be to the most."""
    counts_B = (rows_BK >= 0).sum(-1)
    fewest, most = int(counts_B.max(initial=0)), int(counts_B.sum())
    return (len(np.unique(rows_BK[rows_BK >= 0])) - fewest) / (most - fewest) if most > fewest else 1.0


@dataclass
class Health:
    """Remembers the last steps, and raises each alarm once until it is over."""

    _steps: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _best: float = 0.0
    _raised: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> "Health":
        """As it was when that was ``kept``; as new for None."""
        if kept is None:
            return cls()
        return cls(deque(kept["steps"], WINDOW), kept["best"], set(kept["raised"]))

    def kept(self) -> dict[str, Any]:
        """All that it remembers, as JSON has it, for a checkpoint."""
        return {"steps": list(self._steps), "best": self._best, "raised": sorted(self._raised)}

    def step(self, row: dict[str, float], *, learned: int = 0) -> list[str]:
        """Take note of a step's ``figures``, or of its ``nll`` where nothing is retrieved; new alarms, a line each.

        ``learned``: steps that the retriever has learned so far, where it learns from passages being of use.
        """
        self._steps.append(row)
        if len(self._steps) < WINDOW or "entropy" not in row:
            return []
        mean = {name: sum(step[name] for step in self._steps) / WINDOW for name in row}
        part = self._part() if learned >= WINDOW else 0.0
        return self._new(
            {
                f"only {mean['distinct']:.0%} of the passages retrieved differ: all texts get the same": (
                    "distinct",
                    mean["distinct"] < DISTINCT,
                ),
                f"the null passage has {mean.get('null', 0):.0%} of the weight: passages are not used": (
                    "null",
                    mean.get("null", 0) > NULL,
                ),
                f"the entropy of p(z|x) is {mean['entropy']:.1%} of the most: no passage is preferred": (
                    "entropy",
                    mean["entropy"] > SPREAD,
                ),
                f"the retriever learns, but with passages the loss is {part:.1%} of that without: it follows noise": (
                    "useless",
                    part > USELESS,
                ),
            }
        )

    def recall(self, value: float, questions: int) -> list[str]:
        """Take note of a recall measured on so many held-out questions; new alarms, but not of what chance may do."""
        self._best = max(self._best, value)
        told = f"recall has fallen to {value:.3f} from {self._best:.3f}"
        spread = 2 * math.sqrt(sum(share * (1 - share) for share in (value, self._best)) / questions)
        return self._new({told: ("recall", value < min(FALL * self._best, self._best - spread))})

    def used(self) -> list[str]:
        """New alarms where another loss is to join now: what is read should be of use by then."""
        if not self._steps:
            return []
        part = self._part()
        told = f"with passages the loss is {part:.0%} of that without: they are not used yet, and what joins now"
        return self._new({f"{told} will learn without them": ("unused", part > USED)})

    def answers(self, value: float, *, reads: bool = True) -> list[str]:
        """Take note of the share of held-out questions that were answered; new alarms. Steps' ``nll`` is per answer.

        ``reads``: there are passages to read.
        """
        if not self._steps:
            return []
        known = math.exp(-sum(step["nll"] for step in self._steps) / len(self._steps))
        told = f"answers that are taught have probability {known:.2f}, of held-out ones {value:.1%} are right"
        by_heart = known > HEART and value < HELD_OUT * known
        heart = f"{told}: they are known by heart" + (", passages are hardly read" if reads else "")
        return self._new({heart: ("heart", by_heart)})

    def _part(self) -> float:
        """The loss with passages as a part of that without."""
        nll, alone = (sum(step[name] for step in self._steps) for name in ("nll", "nll_alone"))
        return nll / max(alone, 1e-9)

    def _new(self, rules: dict[str, tuple[str, bool]]) -> list[str]:
        found = []
        for told, (name, raised) in rules.items():
            if raised and name not in self._raised:
                found.append(told)
            (self._raised.add if raised else self._raised.discard)(name)
        return found
