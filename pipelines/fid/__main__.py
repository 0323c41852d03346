r"""Train a generator that reads many passages at once (FiD), or no passage (closed book).

    python -m pipelines.fid --index wiki.index --generator t5-base --questions train.jsonl --dev dev.jsonl \
        --out runs/fid
    ragqa ask --pipeline runs/fid/pipeline "…"

FiD is Fusion-in-Decoder (Izacard & Grave 2021). The retriever of the index finds the passages by dense vectors, BM25
or both. Only the generator learns.

With ``--k 0``, or without an index, the recipe trains the closed book (Roberts et al. 2020), a baseline without
passages. It can answer held-out questions only from its pretraining, or from training questions with the same meaning.

    python -m pipelines.fid --k 0 --generator t5-base --questions train.jsonl --dev dev.jsonl --out runs/closed
    ragqa ask --index wiki.index --reader closed-book:runs/closed/model "…"
"""

from pipelines.common.command import run_recipe
from pipelines.fid.config import FidConfig

if __name__ == "__main__":
    run_recipe("pipelines.fid", FidConfig, __doc__, "pipelines.fid.loop", in_processes=False)
