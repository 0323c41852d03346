"""docs/scale.md: what was measured here, and what it predicts for other sizes and machines.

    python -m eval.bench.plan > docs/scale.md

Every number is marked: (m) measured, with its file, or (c) computed from measured ones and the assumptions that are
named. Made again whenever a measurement is; a test holds the page against this.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

MEASURED = Path(__file__).parents[2] / "docs" / "measurements"
TEMPLATE = Path(__file__).with_name("scale.md.jinja")
"""The page, but for its tables and numbers."""

WIKIPEDIA, THOUSAND_MILLION = 21_015_324, 1_000_000_000
WIDTHS = (384, 768)
PEAK, REACHED = 790e12, 0.25
"""FLOP/s of bf16 matrix products on an H200 (measured by others), and the share of it assumed for an encoder."""
TOKENS = 150
"""Wordpieces of a passage of 100 words with its title, about."""
ENCODERS = {"MiniLM-L6 (22 M)": 10.6e6, "BERT-base (110 M)": 85e6}
"""Weights that multiply every token: without the embeddings."""
GPU_HOUR, CORE_HOUR = 3.0, 0.04
"""US dollars, assumed."""
MEMORY = 64e9
"""Bytes of a shard's machine that vectors may take, assumed."""


def measured(name: str) -> dict[str, Any]:
    """A file of docs/measurements."""
    found: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text())
    return found


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def hours(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} B"


def bytes_of(kind: str, width: int) -> tuple[float, float]:
    """Bytes of a vector that a search reads all over, and those on disk in all, by how the kind is made (c)."""
    codes = {
        "flat": 2 * width,
        "sq8": width + 8,
        "hnsw": 2 * width + 280,
        "ivf-flat": 2 * width + 8,
        "ivf-pq": width / 4 + 8,
        "ivf-rabitq": width / 8 + 16,
    }[kind]
    rest = {"flat": 0, "ivf-rabitq": width + 4}.get(kind, 2 * width)
    return codes, codes + rest


def embedding(rate: float) -> str:
    """How long passages take to embed, and what it costs."""
    rows = []
    for count in (WIKIPEDIA, THOUSAND_MILLION):
        for cores in (2, 64, 512):
            took = count / (rate / 2 * cores)
            rows.append(
                (f"{count:,}", f"{cores} cores, MiniLM in 8 bits", hours(took), dollars(took, cores * CORE_HOUR))
            )
        for name, weights in ENCODERS.items():
            for gpus in (1, 8, 64):
                took = count / (gpus * gpu_rate(weights))
                rows.append(
                    (f"{count:,}", f"{gpus} GPU{'s' * (gpus > 1)}, {name}", hours(took), dollars(took, gpus * GPU_HOUR))
                )
    return table(("passages", "by", "time (c)", "cost (c)"), rows)


def gpu_rate(weights: float) -> float:
    """Passages a second of a GPU (c): the products alone, attention left out."""
    return REACHED * PEAK / (2 * weights * TOKENS)


def dollars(seconds: float, an_hour: float) -> str:
    return f"${seconds / 3600 * an_hour:,.0f}"


def sizes() -> str:
    """Bytes of every kind, and shards of it."""
    rows = []
    for count in (WIKIPEDIA, THOUSAND_MILLION):
        for kind in ("flat", "sq8", "hnsw", "ivf-flat", "ivf-pq", "ivf-rabitq"):
            row = [f"{count:,}", kind]
            for width in WIDTHS:
                codes, whole = (each * count for each in bytes_of(kind, width))
                row += [size(codes), size(whole), f"{max(1, -(-codes // MEMORY)):.0f}"]
            rows.append(tuple(row))
    head = ["passages", "kind"]
    for width in WIDTHS:
        head += [f"D = {width}: codes (c)", "on disk (c)", f"shards of {MEMORY / 1e9:.0f} GB (c)"]
    return table(tuple(head), rows)


def kinds() -> str:
    """Every kind at every size as it was measured."""
    rows = []
    for row in measured("kinds")["rows"]:
        for found in row["searches"]:
            rows.append(
                (
                    f"{row['size']:,}",
                    row["kind"],
                    str(found.get("wanted", "exact")),
                    f"{found['found']:.3f}",
                    f"{found['single_qps']:,.0f}",
                    f"{found['batch_qps']:,.0f}",
                    f"{row['bytes_per_vector']:,.0f}" if "bytes_per_vector" in row else "1,536",
                    hours(row["build_s"]) if "build_s" in row else "–",
                    f"{row['build_peak_rss_mb']:,} MB" if "build_peak_rss_mb" in row else "–",
                )
            )
    head = (
        "vectors",
        "kind",
        "recall wanted",
        "found",
        "q/s, one",
        "q/s, 1,000",
        "bytes a vector",
        "built in",
        "peak RSS",
    )
    return table(head, rows)


def faster(wanted: float) -> str:
    """Kinds at 2 million vectors against FAISS's exact search in float32."""
    rows = {row["kind"]: row["searches"] for row in measured("kinds")["rows"] if row["size"] == 2_000_000}
    (exact,) = rows.pop("IndexFlatIP")
    told = []
    for kind, searches in rows.items():
        for found in searches:
            if found.get("wanted") == wanted:
                times = (found[field] / exact[field] for field in ("single_qps", "batch_qps"))
                told.append(
                    f"`{kind}` " + " and ".join(f"{each:.1f}" if each < 10 else f"{each:.0f}" for each in times)
                )
    return ", ".join(told)


def shown() -> str:
    """21 million vectors, measured."""
    found = measured("scale")
    rows = []
    for name in ("dense", "dense, harder", "bm25", "hybrid"):
        times = [f"{found[name][key]:,.0f}" for key in ("first_ms", "p50_ms", "p95_ms", "worst_ms")]
        recalls = [f"{found[name][key]:.3f}" if key in found[name] else "–" for key in ("recall_at_20", "of_the_real")]
        rows.append((name, *times, *recalls))
    head = ("search", "first, ms (m)", "p50 (m)", "p95 (m)", "worst (m)", "recall@20 (m)", "of the real (m)")
    return table(head, rows)


def page() -> str:
    """All of it."""
    embed, scale, built = measured("embed"), measured("scale"), measured("scale_build")
    rate = max(run["passages_per_s"] for run in embed["index_embed"])
    codes = bytes_of("ivf-rabitq", 384)[0]
    added = built["stages"]["add"]
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(TEMPLATE.read_text())
    return template.render(
        embed=embed,
        scale=scale,
        built=built,
        hours=hours,
        added_per_s=WIKIPEDIA / added,
        rate=rate,
        shown=shown(),
        kinds=kinds(),
        faster={wanted: faster(wanted) for wanted in (0.95, 0.98)},
        embedding=embedding(rate),
        sizes=sizes(),
        by_gpu=", ".join(f"{name} {gpu_rate(weights):,.0f} (c)" for name, weights in ENCODERS.items()),
        codes_21m=size(codes * WIKIPEDIA),
        codes_1b=size(codes * THOUSAND_MILLION),
        added_on_2=hours(added),
        added_on_64=hours(added / 32),
        reached=REACHED,
        peak=PEAK,
        tokens=TOKENS,
        gpu_hour=GPU_HOUR,
        core_hour=CORE_HOUR,
        memory=MEMORY,
    )


if __name__ == "__main__":
    print(page(), end="")
