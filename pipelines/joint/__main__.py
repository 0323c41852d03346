r"""Joint training: one retriever under the losses of REALM, RAG and a span reader.

    python -m pipelines.joint --corpus wiki.index --encoder runs/encoder/model --retriever runs/cloze/model \
        --questions train.jsonl --dev dev.jsonl --out runs/joint
    ragqa ask --pipeline runs/joint/system/pipeline --reader rag-token "…"

The loss is L = λ_mlm · L_REALM + λ_gen · L_RAG + λ_span · L_reader, over one dual encoder and its refreshed index. Each
step draws a batch for every active loss, and one optimizer step takes the sum of their gradients.

Training begins with masked words. With few questions a generator would memorise the answers before passages help, and
then the retriever would learn nothing from the questions. So training on questions begins after a share of the steps
(``--gen-from``, by default half). An alarm is raised if at this step the reader of masked words does not use passages.
Another alarm is raised if the generator answers training questions, but few held-out questions.
"""

from pathlib import Path

from pipelines.common.command import run_recipe
from pipelines.joint.config import JointConfig
from ragqa.progress import SILENT, Notify, Progress, ignore_line


def main(config: JointConfig, *, progress: Progress = SILENT, notify: Notify = ignore_line) -> Path:
    """Train jointly, and make a pipeline; return the directory of the pipeline.

    Args:
        config: settings of the run.
        progress: shows the steps, and the work of the assembly.
        notify: receives a line for each evaluation and alarm, and about each calibration.

    Raises:
        RagqaError: an input cannot be used, a package is missing, or training or assembling fails.
    """
    # Imported here, so that --help needs no torch.
    from pipelines.common import assemble
    from pipelines.common.processes import train_in_processes
    from pipelines.joint import loop

    train_in_processes(loop.main, config, progress=progress, notify=notify)
    return assemble.main(loop.plan_pipeline(config), progress=progress, notify=notify)


if __name__ == "__main__":
    run_recipe("pipelines.joint", JointConfig, __doc__, main, in_processes=False)
