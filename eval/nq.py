"""Natural Questions (open): questions to Google, answered with a few words of Wikipedia.

Kwiatkowski et al. 2019, in the open form of Lee et al. 2019: questions whose short answer has at most five tokens,
without the page of the answer. Papers test on the dev set of the open form, and cut their dev set from train.

Splits in files: ``train`` (4,997 questions) and ``dev`` (8,757, the dev set of the papers), both from the original
train split; ``test`` (3,610, the dev file of NQ-open), and ``test-a`` (1,800 of the test questions). Metric: exact
match with the best gold answer, after Unicode NFD and SQuAD's normalisation.

    python -m eval.nq --pipeline DIR --data DIR
"""

from eval.published import list_published
from eval.suite import Hub, Split, Suite, main

NQ = Suite(
    key="nq",
    title="Natural Questions (open)",
    about=(
        "Questions that people typed into Google, with short answers that annotators marked on a Wikipedia page "
        "(Kwiatkowski et al. 2019). Only answers of at most five tokens are used (NQ-open, Lee et al. 2019). Source: "
        "github.com/google-research-datasets/natural-questions, nq_open. Licence: CC BY-SA 3.0."
    ),
    splits={
        "train": Split("train.jsonl", 4_997),
        "dev": Split("dev.jsonl", 8_757),
        "test-a": Split("test-a.jsonl", 1_800),
        "test": Split("test.jsonl", 3_610),
    },
    default_split="test-a",
    hub=Hub(
        name="google-research-datasets/nq_open",
        revision="5dd9790a83002ad084ddeb7c420dc716852c6f28",
        question="question",
        answers="answer",
        splits={"train": ("train", 87_925), "test": ("validation", 3_610)},
    ),
    answer_type="short spans of at most five tokens",
    published=list_published("nq"),
    caution=(
        "test-a is a part of the papers' 3,610 test questions. It is not EfficientQA's dev set, which also has 1,800 "
        "questions. train is a part of the papers' 79,168. all-MiniLM-L6-v2 was trained on pairs from NQ's train "
        "split, from which dev was cut. So systems that start from this encoder are not zero-shot here. Test questions "
        "often have several answers (43 % of test-a), dev questions rarely (10 %). So scores on dev are lower: ORQA "
        "has 31.3 on dev and 33.3 on test. ORQA and REALM score with Unicode NFD, DPR and FiD without. The two rules "
        "differ only for accented letters."
    ),
)

if __name__ == "__main__":
    main(NQ)
