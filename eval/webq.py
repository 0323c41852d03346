"""WebQuestions: questions suggested by Google, answered with entities of Freebase.

Berant et al. 2013. The questions were suggested by Google's completion, the answers were looked up in Freebase by
paid workers, so they are names of entities and often several.

Splits: ``train`` (3,777 of the original 3,778 questions); ``test`` (2,032) and ``test-a`` (1,057 of
them). Metric: exact match with the best of the gold answers, after Unicode NFD and SQuAD's normalisation.

    python -m eval.webq --pipeline DIR --data DIR
"""

from eval.published import list_published
from eval.suite import Hub, Split, Suite, main

WEBQ = Suite(
    key="webq",
    title="WebQuestions",
    about=(
        "Questions that Google's completion suggested, answered from Freebase by paid workers (Berant et al. 2013). "
        "Source: nlp.stanford.edu/software/sempre, and github.com/brmson/dataset-factoid-webquestions. Licence: "
        "CC BY 4.0."
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
    answer_type="names of Freebase entities, often several for a question, and dates",
    published=list_published("webq"),
    caution=(
        "test-a is a part of the papers' 2,032 test questions; the papers split train into 3,417 and a dev set of 361. "
        "Any one of a question's answers counts, where the data set's own metric wants the whole set. Answers are "
        "Freebase's names (Jamaican Creole English Language): a right answer in Wikipedia's words is often wrong here, "
        "and DPR's released code leaves out the normalisation of entities that its authors say is needed. "
        "all-MiniLM-L6-v2 does not name WebQuestions among its training data, but it does name NQ, TriviaQA, GooAQ and "
        "PAQ, questions of the same kind."
    ),
)

if __name__ == "__main__":
    main(WEBQ)
