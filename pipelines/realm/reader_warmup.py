"""Warm up REALM's reader: predict masked words next to a passage, without retrieval.

    python -m pipelines.realm.reader_warmup --corpus wiki.index --encoder runs/encoder/model --out runs/reader

A masked language model that has read single texts only does not use a passage next to a text, even one that holds the
masked words. Until it does, a retriever learns from noise. REALM's BERT learns to use passages in 200,000 steps; few
steps with eight candidates a text are not enough. Here each text has one passage, so that eight times as many texts are
read in the same time. At first it is the text's own passage, from which words can be copied. Later the text is cut out
of more and more passages, or the passage is a random one.
"""

from pipelines.common.command import run_recipe
from pipelines.realm.config import ReaderWarmupConfig

if __name__ == "__main__":
    run_recipe("pipelines.realm.reader_warmup", ReaderWarmupConfig, __doc__, "pipelines.realm.reader_warmup_loop")
