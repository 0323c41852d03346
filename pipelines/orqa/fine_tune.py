r"""Fine-tune ORQA or REALM on pairs of question and answer (Lee et al. 2019, section "Learning").

    python -m pipelines.orqa.fine_tune --corpus wiki.index --retriever runs/realm/model --encoder runs/realm/reader \
        --questions train.jsonl --dev dev.jsonl --out runs/tuned

The place of the answer is latent: every passage that contains the answer counts as right, and so does every span that
matches it. The vectors of the passages stay as they are. The loss has two terms, and the question tower learns from
both. The first makes it rank passages with an answer high in a large beam. The second makes the reader mark answers in
the best few passages. ``pipelines.common.assemble`` makes a pipeline from the result.
"""

from pipelines.common.command import run_recipe
from pipelines.orqa.config import FineTuneConfig

if __name__ == "__main__":
    run_recipe("pipelines.orqa.fine_tune", FineTuneConfig, __doc__, "pipelines.orqa.fine_tune_loop")
