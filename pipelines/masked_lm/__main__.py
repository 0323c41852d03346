"""Pretrain an encoder by masked language modelling (BERT, Devlin et al. 2019).

    python -m pipelines.masked_lm --corpus wiki.index --encoder shape --fresh --out runs/encoder

Retrievers and readers can begin from the result instead of a published model.
"""

from pipelines.common.command import run_recipe
from pipelines.masked_lm.config import MaskedLMConfig

if __name__ == "__main__":
    run_recipe("pipelines.masked_lm", MaskedLMConfig, __doc__, "pipelines.masked_lm.loop")
