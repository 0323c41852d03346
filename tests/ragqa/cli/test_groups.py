"""Flat groups: settings of a dataclass inside a config are given without a prefix."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pytest

from ragqa.errors import BadInput
from ragqa.settings.command_line import parse_config
from ragqa.settings.groups import FLAT, collect_settings, make_config, replace_settings


@dataclass(frozen=True, kw_only=True)
class MaskGroup:
    mask: str = "words"
    rate: float = 0.1


@dataclass(frozen=True, kw_only=True)
class SourceGroup:
    source: Path


@dataclass(frozen=True, kw_only=True)
class GroupedConfig:
    source: Annotated[SourceGroup, FLAT]
    steps: int = 3
    mask: Annotated[MaskGroup, FLAT] = MaskGroup(rate=0.5)


EXPECTED = GroupedConfig(source=SourceGroup(source=Path("s")), mask=MaskGroup(mask="spans", rate=0.5))


def test_settings_of_groups_are_made_replaced_and_listed_by_their_own_names() -> None:
    """A setting of a group may have the name of the group."""
    assert make_config(GroupedConfig, source=Path("s"), mask="spans") == EXPECTED
    assert replace_settings(EXPECTED, mask=MaskGroup()).mask == MaskGroup()
    assert replace_settings(EXPECTED, rate=0.2).mask == MaskGroup(mask="spans", rate=0.2)
    assert collect_settings(EXPECTED) == {"source": Path("s"), "steps": 3, "mask": "spans", "rate": 0.5}


def test_a_command_line_and_a_file_take_settings_with_and_without_their_group(tmp_path: Path) -> None:
    assert parse_config(GroupedConfig, None, ["--source", "s", "--mask", "spans"]) == EXPECTED
    for row in (asdict(EXPECTED), collect_settings(EXPECTED)):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(row, default=str))
        assert parse_config(GroupedConfig, None, ["--config", str(file)]) == EXPECTED
    file.write_text("{}")
    with pytest.raises(BadInput, match="source is not given"):
        parse_config(GroupedConfig, None, ["--config", str(file)])
