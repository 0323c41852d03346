"""Pretrain a sequence-to-sequence model by denoising the passages of an index.

Either T5's span corruption (Raffel et al. 2020, section 3.1.4) or BART's text infilling (Lewis et al. 2020, section
2.2).

    python -m pipelines.denoise.train --corpus wiki.index --encoder encoder --decoder-layers 1 --out runs/generator
    python -m pipelines.denoise.train --corpus wiki.index --generator shape --fresh --out runs/generator

The result is a model that a generator can begin from, where no published one is available or wanted. Pretraining begins
from a sequence-to-sequence model, or from a BERT-like encoder. An encoder gets a decoder that copies what it reads from
the first step on (``ragqa.models.generation.copying``).
"""

from pipelines.common.command import run_recipe
from pipelines.denoise.config import DenoiseConfig

if __name__ == "__main__":
    run_recipe("pipelines.denoise.train", DenoiseConfig, __doc__, "pipelines.denoise.loop")
