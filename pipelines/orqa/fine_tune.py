r"""Fine-tune ORQA or REALM on questions with answers (Lee et al. 2019, section "Learning").

    python -m pipelines.orqa.fine_tune --corpus wiki.index --retriever runs/realm/model --encoder runs/realm/reader \
        --questions train.jsonl --dev dev.jsonl --out runs/tuned

The position of the answer is not given: all passages that contain the answer count as right, and all spans that match
it. The vectors of the passages do not change. The loss has two terms, and the question tower
learns from both. The first term ranks passages with an answer high among many passages (the beam). The second term
teaches the reader to mark answers in the best few passages. ``pipelines.common.assemble`` makes a pipeline from the
result.
"""

from pipelines.common.command import run_recipe
from pipelines.orqa.config import FineTuneConfig

if __name__ == "__main__":
    run_recipe("pipelines.orqa.fine_tune", FineTuneConfig, __doc__, "pipelines.orqa.fine_tune_loop")
