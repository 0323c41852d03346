"""Recognition of disambiguation pages by template and title."""

import pytest

from ragqa.corpus.formats.mediawiki.names import is_disambiguation

pytest.importorskip("mwparserfromhell", reason="needs the extra wiki")


@pytest.mark.parametrize(
    "text",
    [
        "'''A''' may be:\n* [[B]]\n{{disambiguation}}",
        "{{Disambig}}",
        "{{disamb|geo}}",
        "{{ Hndis | name = A }}",
        "{{geodis}}",
        "{{Human_name disambiguation}}",
        "{{Template:Disambiguation}}",
        "{{Letter–number combination disambiguation\n}}",
        "a __DISAMBIG__",
        "{{Begriffsklärung}}",
        "{{неоднозначность}}",
        "{{曖昧さ回避}}",
    ],
)
def test_disambiguations_are_recognised_by_template(text: str) -> None:
    assert is_disambiguation("A", text)


@pytest.mark.parametrize(
    "text",
    ["{{disambiguation needed|date=May 2020}}", "{{about||other uses|A (disambiguation)}}", "disambiguation", "{{dab"],
)
def test_articles_are_not_taken_for_disambiguations(text: str) -> None:
    assert not is_disambiguation("A", text)


def test_disambiguations_are_recognised_by_title() -> None:
    assert is_disambiguation("Austin (disambiguation)", "'''Austin''' may be…")
    assert not is_disambiguation("Disambiguation", "'''Disambiguation''' is…")
