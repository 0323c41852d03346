"""Learning-rate schedules as functions of the step."""


def warmup_linear(step: int, *, peak: float, warmup: int, total: int) -> float:
    """Return the learning rate: linear from 0 to ``peak`` over ``warmup`` steps, then to 0 at ``total`` (BERT)."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * max(0.0, (total - step) / max(1, total - warmup))


def warmup_steps(chosen: int | None, default: int, total: int) -> int:
    """Return the steps of warm-up: ``chosen``, or the default but at most a tenth of ``total``."""
    return min(default, total // 10) if chosen is None else min(chosen, total)
