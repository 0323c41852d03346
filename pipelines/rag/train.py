r"""Train retriever and generator end to end (RAG, Lewis et al. 2020).

    python -m pipelines.rag.train --corpus wiki.index --retriever runs/dpr/model --generator bart-large \
        --questions train.jsonl --dev dev.jsonl --out runs/rag

The retriever finds passages for each question. The generator, a seq2seq model, reads the question with
each passage and writes the answer. The question tower and the generator learn from the likelihood of the answer,
marginalised over the passages. The vectors of the passages do not change, as in the paper. With ``--learn-passages``
the passage tower learns as well, and the index is refreshed during training, as in ``pipelines.realm.pretrain``.
``pipelines.common.assemble`` makes a pipeline from the result.
"""

from pipelines.common.command import run_recipe
from pipelines.rag.config import RagConfig

if __name__ == "__main__":
    run_recipe("pipelines.rag.train", RagConfig, __doc__, "pipelines.rag.loop")
