r"""Make a generator from a span reader; its decoder copies answers from the passage.

    python -m pipelines.rag.warm_generator --reader runs/reader --questions train.jsonl --dev dev.jsonl --out \
        runs/generator
    python -m pipelines.rag.train --generator runs/generator/generator ...

A new decoder needs very many questions until it finds an answer in the encoder's output. The output of a span reader's
encoder shows where answers stand. So the decoder's attention is first fitted to this output in closed form
(``ragqa.models.generation.copying``). Then the generator is trained on questions with their gold passages. The encoder
is frozen in the first steps. Besides the loss of the answer, a second loss makes the decoder attend to the place of the
answer in the passage.
"""

from pipelines.common.command import run_recipe
from pipelines.rag.config import WarmGeneratorConfig

if __name__ == "__main__":
    run_recipe("pipelines.rag.warm_generator", WarmGeneratorConfig, __doc__, "pipelines.rag.warm_generator_loop")
