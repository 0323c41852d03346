"""Train a retriever by the inverse cloze task, the first stage of ORQA (Lee et al. 2019).

    python -m pipelines.orqa.inverse_cloze --corpus wiki.index --encoder encoder --out runs/cloze

A query is a sentence of a passage. The retriever learns to rank this passage above the other passages of the batch
(section "Inverse Cloze Task" of the paper). The vectors of a batch are computed in chunks of ``--chunk`` texts, so that
memory does not limit the batch.
"""

from pipelines.common.command import run_recipe
from pipelines.orqa.config import InverseClozeConfig

if __name__ == "__main__":
    run_recipe("pipelines.orqa.inverse_cloze", InverseClozeConfig, __doc__, "pipelines.orqa.inverse_cloze_loop")
