r"""Pretrain retriever and reader by masked language modelling (REALM, Guu et al. 2020).

    python -m pipelines.realm.pretrain --corpus wiki.index --encoder runs/encoder/model --retriever runs/cloze/model \
        --out runs/realm

A retriever finds passages for each text, and a reader predicts the masked words of the text from them. Both learn from
the likelihood of the masked words. The index of the passages is refreshed during training. ``pipelines.orqa.fine_tune``
trains the resulting retriever and reader on questions. ``pipelines.realm`` runs all stages of the paper.
"""

from pipelines.common.command import run_recipe
from pipelines.realm.config import PretrainConfig

if __name__ == "__main__":
    run_recipe("pipelines.realm.pretrain", PretrainConfig, __doc__, "pipelines.realm.pretrain_loop")
