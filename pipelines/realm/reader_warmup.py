"""Warm up REALM's reader: predict masked words next to a passage, without retrieval.

    python -m pipelines.realm.reader_warmup --corpus wiki.index --encoder runs/encoder/model --out runs/reader

A masked language model trained on single texts does not use a passage next to a text, even if the passage contains the
masked words. Until the reader uses passages, the retriever learns from noise. In REALM, BERT learns to use passages in
200,000 steps; a few steps with eight passages per text are not enough. In the warm-up each text has one passage, so
that eight times as many texts are read in the same time. At first this is the passage that the text comes from, so that
the reader can copy words. In the first half of the steps, two other cases become more frequent: the text is cut out of
its passage, or the passage is random.
"""

from pipelines.common.command import run_recipe
from pipelines.realm.config import ReaderWarmupConfig

if __name__ == "__main__":
    run_recipe("pipelines.realm.reader_warmup", ReaderWarmupConfig, __doc__, "pipelines.realm.reader_warmup_loop")
