"""Learning-rate schedules as functions of the step."""


def warmup_linear(step: int, *, peak: float, warmup: int, total: int) -> float:
    """Linear from 0 to ``peak`` over ``warmup`` steps, then linear to 0 at ``total`` (BERT)."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * max(0.0, (total - step) / max(1, total - warmup))
