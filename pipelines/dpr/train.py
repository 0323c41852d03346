r"""Train a dual encoder on questions with answers or gold passages (Karpukhin et al. 2020).

    ragqa index wiki/ --out wiki.index --retriever bm25 --blocks words
    python -m pipelines.dpr.train --corpus wiki.index --encoder runs/encoder/model --questions nq/train.jsonl \
        --dev nq/dev.jsonl --out runs/dpr --rounds 2

This is DPR. The retriever learns to find the passage of a question among all passages of the batch. The batch contains
a hard negative for each question: a passage without an answer that BM25 ranks high.

With ``--rounds 2`` the trained retriever finds further hard negatives, and a second round trains with negatives of both
kinds. The second round begins from the encoder again, like DPR's later checkpoint. With ``--continue-weights`` it
begins from the weights of the first round (ANCE, Xiong et al. 2021). DPR's author found both about equal
(github.com/facebookresearch/DPR, issue 114).

The run writes the retriever into OUT/model, its export for the CPU into OUT/export, and the figures of each round into
OUT/round-N. The published recipe is for 8 GPUs (``--processes 8 --gpus``). Vectors are computed in chunks of
``--chunk``, so that one GPU or a CPU is enough.
"""

from pipelines.common.command import run_recipe
from pipelines.dpr.config import DprConfig

if __name__ == "__main__":
    run_recipe("pipelines.dpr.train", DprConfig, __doc__, "pipelines.dpr.loop")
