r"""Calibrate the confidence of an exported span reader on held-out questions.

    python -m pipelines.calibrate --reader DIR --squad train-v1.1.json.xz --questions nq/dev.jsonl \
        --index wiki.index --work DIR --out FILE.json --plot FILE.png

The reader answers the questions about the SQuAD articles that ``pipelines.span_reader.train`` held out, twice: from
each question's own paragraph, and from all paragraphs of the file. It answers the questions of ``--questions`` from
``--index``. Questions that selected the weights are left out: ``--seed``, ``--held-out`` and
``--selection-sample`` must be ``--seed``, ``--held-out`` and ``--sample`` of the training. All questions of
``--own-questions`` are answered from ``--own-index``; some of them can be without an answer.

Half of the questions of SQuAD and of ``--questions`` are answered again without the documents that contain an answer,
so that every answer is wrong. Up to 200 questions of each of these files are also asked over ``--own-index``, whose
documents do not answer them. All these answers have the weight 0.1, because most questions of users have an answer.
Each question with more than 3 passages is also answered from only the first 3, because some users set a small ``--k``;
the weight of these answers is multiplied by 0.25. All files have the same total weight.

SQuAD's training questions have the answer of one annotator. Its test questions have the answers of three annotators,
and each of them counts as right. With only one gold answer, confidence would be too low. So an answer that shares a
word with the gold answer counts as right with the probability that another annotator would have given it
(``judge_by_agreement`` in ``conditions.py``).

For a reader with an early layer, the margin of the early score is chosen first. Then the weight of retrieval scores in
reading (per standard deviation) is chosen: the weight that makes right answers from an index most probable. For readers
that use raw retrieval scores, it is 1. Then a regression is fitted. The threshold of confidence, below which questions
are declined, is the highest threshold that declines at most 5 % of right answers from the indexes that answer most
questions. The reader's ``calibration.json`` stores margin, weight, regression and threshold. The quality in ``--out``
is measured with fits on one half of the questions, applied to the other half, and with fits on all other files.
"""

import sys
from collections.abc import Sequence

from pipelines.calibrate.config import CalibrateConfig
from pipelines.calibrate.fit import run_calibration
from ragqa.settings.command_line import parse_config, report_errors
from ragqa.terminal import print_note, print_text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ``arguments`` replace the arguments of the process."""
    with report_errors("pipelines.calibrate"):
        config = parse_config(CalibrateConfig, __doc__, arguments)
        command = " ".join(["python -m pipelines.calibrate", *(sys.argv[1:] if arguments is None else arguments)])
        calibration = run_calibration(config, command)
        print_text(config.out.read_text())
        installed = f"installed in {config.reader}: questions are declined below confidence {calibration.threshold}"
        print_note(installed)


if __name__ == "__main__":
    main()
