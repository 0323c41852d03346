r"""Train a dual encoder from questions with answers or gold passages (DPR).

DPR is by Karpukhin et al. 2020.

    ragqa index wiki/ --out wiki.index --retriever bm25
    python -m pipelines.dpr.train --corpus wiki.index --encoder runs/encoder/model --questions nq/train.jsonl \
        --dev nq/dev.jsonl --out runs/dpr --rounds 2

A question has to find its passage among those of the whole batch. Among them is a hard negative, which BM25 ranks high
and which holds no answer. With ``--rounds 2`` the trained retriever then finds hard negatives, too, and training begins
again with both kinds. It begins from the encoder, as DPR's later checkpoint did, or with ``--continue-weights`` from
the weights of the round before (ANCE, Xiong et al. 2021). DPR's author found the two about equal
(github.com/facebookresearch/DPR, issue 114).

The run writes OUT/model, its export for the CPU OUT/export, and OUT/round-N with the figures of each round. The
published recipe is for 8 GPUs (``--processes 8 --gpus``). Vectors are computed in parts of ``--chunk``, so that one GPU
or a CPU will do.
"""

from pipelines.common.command import run_recipe
from pipelines.dpr.config import DprConfig

if __name__ == "__main__":
    run_recipe("pipelines.dpr.train", DprConfig, __doc__, "pipelines.dpr.loop")
