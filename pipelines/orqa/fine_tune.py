r"""Fine-tune ORQA or REALM on pairs of question and answer (Lee et al. 2019, section 6.2).

    python -m pipelines.orqa.fine_tune --corpus wiki.index --retriever runs/realm/model --encoder runs/realm/reader \
        --questions train.jsonl --dev dev.jsonl --out runs/tuned

The place of the answer is latent: every passage that holds it counts as right, and every span that matches it. The
vectors of the passages stay as they are. The question tower learns from two terms of the loss: it ranks passages with
an answer high in a large beam, and the reader marks answers in the best few. ``pipelines.common.assemble`` makes a
pipeline of the result.
"""

from pipelines.common.command import run_recipe
from pipelines.orqa.config import FineTuneConfig

if __name__ == "__main__":
    run_recipe("pipelines.orqa.fine_tune", FineTuneConfig, __doc__, "pipelines.orqa.fine_tune_loop")
