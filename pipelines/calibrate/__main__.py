r"""Calibrate the confidence of an exported span reader on held-out questions.

    python -m pipelines.calibrate --reader DIR --squad train-v1.1.json.xz --questions nq/dev.jsonl \
        --index wiki.index --work DIR --out FILE.json --plot FILE.png

The questions of the SQuAD articles that ``pipelines.span_reader.train`` holds out are asked twice: in their own
paragraph, and over all paragraphs of the file. The questions of ``--questions`` are asked over ``--index``. Questions
that selected the weights are left out: ``--seed``, ``--held-out`` and ``--selection-sample`` are ``--seed``,
``--held-out`` and ``--sample`` of the training. Half of the questions are asked again without the documents that answer
them; every answer is wrong then. These answers have the weight ``UNANSWERABLE_WEIGHT``, so that confidence is that of
ordinary questions. Answers from the first ``SHALLOW_HITS`` hits have the weight ``SHALLOW_WEIGHT``, because some users
read only a few. Files weigh the same, however many conditions their questions are asked under.

SQuAD's training questions have the answer of one annotator; its test questions have those of three, any of which is
right. By one annotator's answer alone, confidence would come out too low. So an answer that shares a word with it is
right with the probability that another annotator would have given it (``judge_by_agreement`` in ``conditions.py``).

The weight of retrieval scores in reading (per standard deviation) is chosen first: the one that makes right answers
most probable over indexes. The reader's ``calibration.json`` gets that weight, the regression, and the threshold below
which questions are declined: the highest one that declines at most 5 % of the right answers over indexes. All figures
come from fits on one half of the questions, applied to the other half.
"""

import sys
from collections.abc import Sequence

from pipelines.calibrate.fit import CalibrateConfig, run_calibration
from ragqa.settings.command_line import parse_config, report_errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Calibrate a reader from the command line."""
    with report_errors("pipelines.calibrate"):
        config = parse_config(CalibrateConfig, __doc__, arguments)
        command = " ".join(["python -m pipelines.calibrate", *(sys.argv[1:] if arguments is None else arguments)])
        calibration = run_calibration(config, command)
        print(config.out.read_text())
        installed = f"installed in {config.reader}: questions are declined below {calibration.threshold}"
        print(installed, file=sys.stderr)


if __name__ == "__main__":
    main()
