"""Pretrain a seq2seq model by denoising the passages of an index.

The objective is T5's span corruption (Raffel et al. 2020, section 3.1.4) or BART's text infilling (Lewis et al. 2020,
section 2.2).

    python -m pipelines.denoise --corpus wiki.index --encoder encoder --decoder-layers 1 --out runs/generator
    python -m pipelines.denoise --corpus wiki.index --generator shape --fresh --out runs/generator

The recipes of generators can begin from the result instead of a published model. Pretraining begins from a
seq2seq model or from an encoder. An encoder gets a decoder, which is fitted to copy its input before the
first step (``ragqa.models.generation.copying``).
"""

from pipelines.common.command import run_recipe
from pipelines.denoise.config import DenoiseConfig

if __name__ == "__main__":
    run_recipe("pipelines.denoise", DenoiseConfig, __doc__, "pipelines.denoise.loop")
