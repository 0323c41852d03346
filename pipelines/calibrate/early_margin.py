"""Choice of the margin by which an early layer selects windows (``select_promising``)."""

from collections.abc import Sequence
from typing import Any

from pipelines.calibrate.conditions import OWN_PARAGRAPH, CalibrationSet
from ragqa.reading.span import ExtractiveReader
from ragqa.reading.span_candidates import ScoredPassages

MARGINS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Margins to try, in nats."""
MAX_LOSS = 0.003
"""Maximum decrease of the share of right answers, compared with reading all windows to the end."""
_PRIOR_WEIGHT = 0.5
"""Weight of retrieval scores while margins are compared; the final weight is chosen later."""


def choose_early_margin(
    reader: ExtractiveReader,
    sets: Sequence[CalibrationSet],
    scored: Sequence[Sequence[ScoredPassages]],
) -> tuple[float | None, dict[str, Any]]:
    """Choose the smallest margin that loses few right answers (``MAX_LOSS``).

    The share of right answers is measured on questions with gold answers that are answered from an index, without
    unanswerable sets.

    Args:
        reader: reader with an early layer.
        sets: sets of questions.
        scored: scored passages of the questions of each set, with all windows.

    Returns:
        The margin in nats, or None if every margin loses more or there are no such questions; and figures by margin and
        for all windows: ``right``, the share of right answers, and ``read``, the share of windows read to the end.
    """
    chosen = [
        (question, passages, questions.judge)
        for questions, passages_of_set in zip(sets, scored, strict=True)
        if questions.name != OWN_PARAGRAPH and not questions.is_unanswerable
        for question, passages in zip(questions.questions, passages_of_set, strict=True)
        if question.answers and passages.windows
    ]
    if not chosen:
        return None, {}
    windows = sum(len(passages.windows) for _, passages, _ in chosen)

    def measure(margin: float | None) -> dict[str, float]:
        right, read = 0.0, 0
        for question, passages, judge in chosen:
            part = passages if margin is None else passages.read_on(margin)
            read += len(part.windows)
            if answers := reader.merge_spans(part, _PRIOR_WEIGHT):
                right += judge(answers[:1], question.answers)[0]
        return {"right": right / len(chosen), "read": read / windows}

    whole = measure(None)
    by_margin = {margin: measure(margin) for margin in MARGINS}
    good = [margin for margin, figures in by_margin.items() if whole["right"] - figures["right"] <= MAX_LOSS + 1e-9]
    by_name = {"all windows": whole, **{str(margin): figures for margin, figures in by_margin.items()}}
    rounded = {name: {key: round(value, 4) for key, value in figures.items()} for name, figures in by_name.items()}
    return (min(good) if good else None), rounded
