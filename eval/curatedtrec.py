"""CuratedTREC: factoid questions with regular expressions (patterns) as answers.

Baudiš and Šedivý 2015, the larger of two versions. The questions come from TREC 1999 to 2003 and from a chat room. Each
question has a pattern that right answers match.

Splits: ``train`` (1,689 questions), ``test`` (694), and ``test-a`` (342 of the test questions). Metric: share of
answers in which the pattern matches at the first character, in any case (``re.match``, as in ORQA and DrQA). Answers
are not normalised. A common mistake is to compare the patterns with answers as plain texts.

    python -m eval.curatedtrec --pipeline DIR --data DIR
"""

from eval.published import list_published
from eval.suite import Split, Suite, main

CURATEDTREC = Suite(
    key="curatedtrec",
    title="CuratedTREC",
    about=(
        "Questions of TREC's question answering tracks of 1999 to 2003 and of a chat room, with a regular expression "
        "for the answer (Baudiš and Šedivý 2015, large2180). Source: github.com/brmson/dataset-factoid-curated, commit "
        "087375a260f713cd5991b6cd615e55f972d50989. Licence: none stated; TREC's questions and patterns are in the "
        "public domain, as NIST told its authors."
    ),
    splits={
        "train": Split("train.jsonl", 1_689),
        "test-a": Split("test-a.jsonl", 342),
        "test": Split("test.jsonl", 694),
    },
    default_split="test-a",
    # The hub has two copies, but neither can be used. Tevatron/wikipedia-curated needs a loading script, which
    # datasets 4 does not run. RUC-NLPIR/FlashRAG_datasets has splits of other sizes than the papers.
    hub=None,
    regex=True,
    answer_type="one regular expression for each question; it matches a name, date, number or cause",
    published=list_published("curatedtrec"),
    caution=(
        "test-a is a part of the papers' 694 test questions, and one question is 0.3 points. train is larger than the "
        "papers' splits (1,353 for training, 133 for dev). The authors of the data set accept a match anywhere in the "
        "answer. ORQA, DrQA and this suite accept only a match at its first character. DPR's released code matches "
        "patterns only for retrieval, so nobody can check how its answers were scored. Some patterns accept too much "
        "(1915|May also matches May 1801 and Mayor), some too little. One question occurs twice in test-a, six in "
        "train, some with two patterns. The training data of all-MiniLM-L6-v2 does not list these questions, but it "
        "lists NQ, TriviaQA, GooAQ and PAQ, which have similar questions."
    ),
)

if __name__ == "__main__":
    main(CURATEDTREC)
