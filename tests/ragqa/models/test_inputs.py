"""Batches are grouped by length, padded and rounded to few sizes."""

from hypothesis import given
from hypothesis import strategies as st

from ragqa.models.inputs import group_by_length, pad_rows, round_up


def test_sizes_are_rounded_up_to_eight_values_per_doubling() -> None:
    assert [round_up(count) for count in (0, 1, 7, 15, 16, 17, 31, 33, 65, 129, 225, 256)] == [
        *(0, 1, 7, 15, 16, 18, 32, 36),  # in twos from 16 on, in fours from 32 on
        *(72, 144, 240, 256),
    ]
    assert [round_up(count) for count in range(128, 257)] == [-(-count // 16) * 16 for count in range(128, 257)]
    assert len({round_up(count) for count in range(1024, 2049)}) == 9


@given(st.integers(0, 1 << 20))
def test_rounding_adds_at_most_an_eighth(count: int) -> None:
    assert count <= round_up(count) <= count * 9 / 8 and round_up(round_up(count)) == round_up(count)


def test_groups_begin_where_they_save_padding() -> None:
    lengths = [9, 9, 8, 5, 5, 2]
    assert list(group_by_length(lengths, min_saving=9)) == [(0, 3), (3, 6)]  # 3 texts shorter by 4: 12; then 1 by 3
    assert list(group_by_length(lengths, min_saving=13)) == [(0, 6)]
    long = [40] * 19 + [10] * 45
    assert list(group_by_length(long, min_saving=100)) == [(0, 24), (24, 64)]  # 64 texts are divided in eights
    assert list(group_by_length([8] * 5, min_saving=100, max_tokens=16)) == [(0, 2), (2, 4), (4, 5)]


@given(st.lists(st.integers(1, 99), min_size=1), st.integers(1, 500), st.none() | st.integers(1, 500))
def test_groups_hold_every_text_once(lengths: list[int], min_saving: int, max_tokens: int | None) -> None:
    lengths.sort(reverse=True)
    groups = list(group_by_length(lengths, min_saving, max_tokens))
    assert [row for first, last in groups for row in range(first, last)] == list(range(len(lengths)))
    sizes = [(last - first, lengths[first] * (last - first)) for first, last in groups]
    assert max_tokens is None or all(count == 1 or tokens <= max_tokens for count, tokens in sizes)


def test_rows_are_padded_to_the_longest() -> None:
    batch = pad_rows([[5, 6], [7], []])
    assert batch.ids_NL.tolist() == [[5, 6], [7, 0], [0, 0]]
    assert batch.mask_NL.tolist() == [[1, 1], [1, 0], [0, 0]]
