"""WebQuestions: questions suggested by Google, answered with entities of Freebase.

Berant et al. 2013. Google's completion suggested the questions. Paid workers found the answers in Freebase. So answers
are names of entities, and many questions have several.

Splits: ``train`` (3,777 of the original 3,778 questions), ``test`` (2,032), and ``test-a`` (1,057 of the test
questions). Metric: exact match with the best gold answer, after Unicode NFD and SQuAD's normalisation.

    python -m eval.webq --pipeline DIR --data DIR
"""

from eval.published import list_published
from eval.suite import Hub, Split, Suite, main

WEBQ = Suite(
    key="webq",
    title="WebQuestions",
    about=(
        "Questions that Google's completion suggested, answered from Freebase by paid workers (Berant et al. 2013). "
        "Source: nlp.stanford.edu/software/sempre, and github.com/brmson/dataset-factoid-webquestions. Licence: CC BY "
        "4.0."
    ),
    splits={
        "train": Split("train.jsonl", 3_777),
        "test-a": Split("test-a.jsonl", 1_057),
        "test": Split("test.jsonl", 2_032),
    },
    default_split="test-a",
    hub=Hub(
        name="stanfordnlp/web_questions",
        revision="0e473cbe21d1e91ec18da343644498be6a3f5454",
        question="question",
        answers="answers",
        splits={"train": ("train", 3_778), "test": ("test", 2_032)},
    ),
    answer_type="names of Freebase entities, and dates; many questions have several answers",
    published=list_published("webq"),
    caution=(
        "test-a is a part of the papers' 2,032 test questions. The papers split train into 3,417 questions and a dev "
        "set of 361. One right answer is enough, but the metric of the data set asks for all answers. Answers are "
        "names of Freebase (Jamaican Creole English Language), so a right answer in Wikipedia's words is often wrong "
        "here. DPR's authors say that the names must be normalised, but their released code does not do it. The "
        "training data of all-MiniLM-L6-v2 does not list WebQuestions, but it lists NQ, TriviaQA, GooAQ and PAQ, which "
        "have similar questions."
    ),
)

if __name__ == "__main__":
    main(WEBQ)
