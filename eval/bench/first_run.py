"""What a newcomer waits for: a fresh clone, then ``make ask``, from nothing and again.

python -m eval.bench.first_run --out docs/measurements/first_run.json
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from eval.bench.process import timed
from eval.bench.record import record

QUESTION = "Q=Who built the first working reflecting telescope?"
RUNS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as scratch:
        clone, cache = Path(scratch) / "ragqa", str(Path(scratch) / "cache")
        subprocess.run(["git", "clone", "-q", str(root), str(clone)], check=True)
        make = ["make", "-s", "-C", str(clone), "ask", QUESTION]
        first = timed(make, XDG_CACHE_HOME=cache)
        later = [timed(make, XDG_CACHE_HOME=cache) for _ in range(RUNS)]
        files = [f for f in (clone / ".venv").rglob("*") if f.is_file() and not f.is_symlink()]
        figures = {
            "answer": first["out"].splitlines()[0],
            "first_make_ask_s": round(first["seconds"], 1),
            "later_make_ask_s": round(float(np.median([run["seconds"] for run in later])), 2),
            "later_make_ask_worst_s": round(max(run["seconds"] for run in later), 2),
            "peak_rss_mb_of_any_process": round(max(run["rss_mb"] for run in later)),
            "installed_core_mb": round(sum(f.stat().st_size for f in files) / 1e6),
            "runs": RUNS,
        }
    record(args.out, figures, corpus="demo encyclopedia", questions="1")


if __name__ == "__main__":
    main()
