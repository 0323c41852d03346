r"""Make a generator from a span reader: its decoder copies answers from the passage.

    python -m pipelines.rag.warm_generator --reader runs/reader --questions train.jsonl --dev dev.jsonl --out \
        runs/generator
    python -m pipelines.rag.train --generator runs/generator/generator ...

A new decoder needs very many questions until it finds an answer in the encoder's output. A span reader's encoder knows
where answers stand. So the decoder's attention is first fitted to it in closed form
(``ragqa.models.generation.copying``). Then the generator is trained on questions with their gold passages, at first
with a frozen encoder. Besides the answer, a second loss trains the decoder's attention to look where the answer stands.
"""

from pipelines.common.command import run_recipe
from pipelines.rag.config import WarmGeneratorConfig

if __name__ == "__main__":
    run_recipe("pipelines.rag.warm_generator", WarmGeneratorConfig, __doc__, "pipelines.rag.warm_generator_loop")
