r"""Train an extractive reader on questions with gold or retrieved passages.

    python -m pipelines.span_reader.gold_passages squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \
        --out gold.jsonl
    ragqa index wiki/ gold.jsonl --retriever bm25 --out reader.index
    python -m pipelines.span_reader.train --train squad/train-v1.1.json.xz nq/train-with-passages.jsonl.xz \
        nq/train.jsonl \
        --index reader.index --encoder DIR --dev nq/dev.jsonl --out runs/reader

A question is read in its gold passage. If only answers are known, it is read in passages that the index finds and that
hold one (distant supervision). Passages without an answer are read with them. All spans of all passages compete in one
softmax (Clark & Gardner 2018, "shared norm"), so that scores of different passages can be compared. Every occurrence of
an answer is right, and the loss is marginalised over them (ORQA, Lee et al. 2019, section 4) or, with ``--loss hard``,
counts the most probable one (Min et al. 2019). The first token learns whether its passage holds an answer at all. With
``--teacher`` the reader also learns a larger reader's distribution over spans.

Passages are read in the windows of answering. ``--max-input`` is saved with the reader as ``reader_tokens``.
"""

from pipelines.common.command import run_recipe
from pipelines.span_reader.config import ReaderConfig

if __name__ == "__main__":
    run_recipe("pipelines.span_reader.train", ReaderConfig, __doc__, "pipelines.span_reader.loop")
