"""Train a retriever by the inverse cloze task (Lee et al. 2019, section 5), ORQA's first stage.

    python -m pipelines.orqa.inverse_cloze --corpus wiki.index --encoder encoder --out runs/cloze

A sentence has to find the passage that it was taken from, among the passages of the whole batch. Vectors of a batch are
computed in chunks (``--chunk``), so that memory does not limit the batch.
"""

from pipelines.common.command import run_recipe
from pipelines.orqa.config import InverseClozeConfig

if __name__ == "__main__":
    run_recipe("pipelines.orqa.inverse_cloze", InverseClozeConfig, __doc__, "pipelines.orqa.inverse_cloze_loop")
