"""What the sizes of all benches of several arms have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StageSizes:
    """How often something is done in a stage, and what holds for all stages."""

    warmup: float = 0.1
    """Share of each stage's steps."""
    saves: int = 12
    """Checkpoints of each stage: what a kill costs at most is a twelfth of it."""
    limit: int | None = None
    """Questions of each test set that are answered; None for all."""
    seed: int = 0

    def every(self, steps: int, times: int) -> int:
        """Steps between two of so many events."""
        return max(1, -(-steps // times))

    def warm(self, steps: int) -> int:
        """Steps of warm-up."""
        return max(1, round(self.warmup * steps))
