"""Replies of language models are split into statements with the numbers that they cite."""

import pytest

from ragqa.reading.chat.statements import drop_open_mark, parse_reply


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("It was lit in 1902 [1].", [("It was lit in 1902.", (1,))]),
        ("It was lit in 1902. [1] It burnt oil [2][3].", [("It was lit in 1902.", (1,)), ("It burnt oil.", (2, 3))]),
        ("It was lit by Dr. Holm [1, 2]. Yes.", [("It was lit by Dr. Holm.", (1, 2)), ("Yes.", ())]),
        ("[1] It was lit. [2] It burnt.", [("It was lit.", (1,)), ("It burnt.", (2,))]),
        ("Ada Holm", [("Ada Holm", ())]),
        ("1902 [Passage 3]", [("1902", (3,))]),
        ("1902【4】", [("1902", (4,))]),
        ("Three lamps [2-4].", [("Three lamps.", (2, 3, 4))]),
        ("All [1-9999].", [("All.", (1, 9999))]),
        ("Lamps:\n- oil [1]\n- gas [2]", [("Lamps:", ()), ("oil", (1,)), ("gas", (2,))]),
        ("1. oil [1]\n2. gas\n[2]", [("oil", (1,)), ("gas", (2,))]),
        ("**Oil** [1].", [("Oil.", (1,))]),
        ("<think>It [9] is.</think>\nOil [1].", [("Oil.", (1,))]),
        ("<think>It never ends", []),
        ("It has [sic] a lamp [1].", [("It has [sic] a lamp.", (1,))]),
        ("The year 1902 [1] and 1903 [2].", [("The year 1902 and 1903.", (1, 2))]),
        ("", []),
        (" [1] ", []),
    ],
)
def test_statements_and_their_numbers(raw: str, expected: list[tuple[str, tuple[int, ...]]]) -> None:
    reply = parse_reply(raw)
    assert [(sentence.text, sentence.numbers) for sentence in reply.statements] == expected
    assert all(reply.text[s.start : s.start + len(s.text)] == s.text for s in reply.statements)


def test_a_citation_that_is_being_written_is_left_out() -> None:
    assert drop_open_mark("It burnt oil [1") == "It burnt oil "
    assert drop_open_mark("It burnt oil [1]. It") == "It burnt oil [1]. It"
