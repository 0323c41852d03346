r"""Make a generator from a span reader; its decoder copies answers from the passage.

    python -m pipelines.rag.warm_generator --reader runs/reader --questions train.jsonl --dev dev.jsonl --out \
        runs/generator
    python -m pipelines.rag.train --generator runs/generator/generator ...

A new decoder needs very many questions to learn to find an answer in the encoder's output. The output of a span
reader's encoder shows where answers are. So the decoder's attention is first fitted to this output
(``ragqa.models.generation.copying``). Then the generator is trained on questions with their gold passages. The encoder
is frozen in the first steps. A second loss teaches the decoder to attend to the answer in the passage.
"""

from pipelines.common.command import run_recipe
from pipelines.rag.config import WarmGeneratorConfig

if __name__ == "__main__":
    run_recipe("pipelines.rag.warm_generator", WarmGeneratorConfig, __doc__, "pipelines.rag.warm_generator_loop")
