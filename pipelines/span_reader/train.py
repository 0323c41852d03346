r"""Train a span reader on questions with gold or retrieved passages.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --retriever bm25 --blocks words --out reader.index
    python -m pipelines.span_reader.train --train squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \
        nq/train.jsonl \
        --index reader.index --encoder DIR --dev nq/dev.jsonl --out runs/reader

A question is read in a gold passage or, if it has none, in retrieved passages that contain an answer (distant
supervision). Passages without an answer are read as well. All spans of all passages compete in one softmax (Clark &
Gardner 2018, "shared norm"), so that scores of different passages can be compared.

Every occurrence of an answer counts as right. The loss is marginalised over the occurrences (ORQA, Lee et al. 2019,
section "Learning"). With ``--loss hard``, only the most probable occurrence counts in a rising share of the steps (Min
et al. 2019). From the vector of the first token, the reader learns to predict whether a passage has an answer. With
``--teacher``, the reader also learns another reader's distribution over spans.

A passage is cut into windows as for answering, and each step reads one window of a passage. ``--max-input`` is saved
with the reader as ``reader_tokens``.
"""

from pipelines.common.command import run_recipe
from pipelines.span_reader.config import ReaderConfig

if __name__ == "__main__":
    run_recipe("pipelines.span_reader.train", ReaderConfig, __doc__, "pipelines.span_reader.loop")
