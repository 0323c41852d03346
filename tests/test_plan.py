"""The page about scale says what the measurements say."""

import pytest
from conftest import ROOT

from eval.bench import plan


def test_the_page_is_made_of_the_measurements() -> None:
    assert (ROOT / "docs" / "scale.md").read_text() == plan.page(), "python -m eval.bench.plan > docs/scale.md"


@pytest.mark.parametrize(
    ("kind", "codes", "whole"),
    [
        ("flat", 768, 768),
        ("sq8", 392, 392 + 768),
        ("hnsw", 1048, 1048 + 768),
        ("ivf-flat", 776, 776 + 768),
        ("ivf-pq", 104, 104 + 768),
        ("ivf-rabitq", 64, 64 + 388),
    ],
)
def test_bytes_of_a_vector_by_hand(kind: str, codes: float, whole: float) -> None:
    assert plan.bytes_of(kind, 384) == (codes, whole)


def test_computed_bytes_are_those_that_were_measured() -> None:
    for row in plan.measured("kinds")["rows"]:
        if row["size"] > 1_000_000 and "bytes_per_vector" in row:
            assert row["bytes_per_vector"] == pytest.approx(plan.bytes_of(row["kind"], 384)[1], rel=0.03)


def test_numbers_as_people_say_them() -> None:
    assert [plan.hours(s) for s in (59, 120, 7200, 200_000)] == ["59 s", "2.0 min", "2.0 h", "2.3 d"]
    assert [plan.size(b) for b in (999, 2e6, 16.1e9, 3e12)] == ["999 B", "2.0 MB", "16.1 GB", "3.0 TB"]
    assert plan.gpu_rate(85e6) == pytest.approx(0.25 * 790e12 / (2 * 85e6 * 150))
