"""The refresh bench: the cost of the swaps is read from the log of a run."""

from typing import Any

from eval.bench.refresh import summarize_swaps


def make_swap_row(step: int, paused: float, slowdown: float | None = None) -> dict[str, Any]:
    figures = {"paused": paused, "slowdown": slowdown, "embedding": 2.0, "building": 0.5, "staleness": 7}
    return {"step": step, **{f"swap_{name}": value for name, value in figures.items()}}


def test_the_first_index_is_not_counted_as_a_swap() -> None:
    steps: list[dict[str, Any]] = [{"step": n, "nll": 9.0 - n / 25, "seconds": 0.5} for n in range(100)]
    rows = [
        make_swap_row(0, 30.0),
        *steps[:30],
        make_swap_row(30, 1.0, 1.5),
        *steps[30:60],
        make_swap_row(60, 0.0, 1.1),
        *steps[60:],
    ]
    figures = summarize_swaps(rows)
    assert (figures["steps"], figures["swaps"], figures["seconds"]) == (100, 2, 51.0)
    assert (figures["stood_still_s"], figures["stood_still_s_a_swap"]) == (1.0, 0.5)
    assert figures["slowdown_of_steps"] == {"median": 1.3, "most": 1.5}
    assert (figures["first_index_s"], figures["staleness_at_swap"]) == (2.5, 7)
    assert figures["loss"] == {"first 50 steps": 8.02, "last 50 steps": 6.02}
