"""Flat groups: dataclasses inside a config whose settings are given without a prefix.

    @dataclass(frozen=True, kw_only=True)
    class PretrainConfig(TrainingConfig):
        held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig(eval_every=500)

The code reads ``config.held_out.dev``; the command line has ``--dev`` and a file of options ``"dev"``.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, get_type_hints

Config = TypeVar("Config")


@dataclass(frozen=True)
class Flat:
    """Annotation of a field that holds a flat group."""


FLAT = Flat()


def flat_groups(kind: Any) -> dict[str, Any]:
    """Return the classes of a config's flat groups by the names of their fields."""
    return _flat_groups(kind)


@cache
def _flat_groups(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__origin__ for name, hint in hints.items() if FLAT in getattr(hint, "__metadata__", ())}


def nest_settings(kind: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of each flat group in a dictionary of their own, under the group's name.

    Settings that are nested already stay as they are.
    """
    groups = flat_groups(kind)
    group_of = {field.name: name for name, group in groups.items() for field in fields(group)}
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        is_group = name in groups and (isinstance(value, Mapping) or is_dataclass(value))
        if name in group_of and not is_group:  # a group may have a setting of its own name: masking
            group = group_of[name]
            nested[group] = {**nested.get(group, {}), name: value}
        else:
            nested[name] = value
    return nested


def list_settings(kind: Any) -> list[Field[Any]]:
    """Return the fields of a config's settings, those of flat groups among them."""
    groups = flat_groups(kind)
    own = [field for field in _fields(kind) if field.name not in groups]
    return own + [field for group in groups.values() for field in list_settings(group)]


def settings_of(config: Any) -> dict[str, Any]:
    """Return all settings of a config by name, those of flat groups among them."""
    groups = flat_groups(type(config))
    settings: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        settings |= settings_of(value) if field.name in groups else {field.name: value}
    return settings


def replace_settings(config: Config, /, **settings: Any) -> Config:
    """Return the config with some of its settings, or of those of its flat groups, changed."""
    changed: Any = config
    nested = nest_settings(type(config), settings)
    for name in flat_groups(type(config)).keys() & nested.keys():
        if isinstance(nested[name], dict):
            nested[name] = replace(getattr(changed, name), **nested[name])
    result: Config = replace(changed, **nested)
    return result


def make_config(kind: type[Config], /, **settings: Any) -> Config:
    """Return a config of class ``kind`` from its settings and those of its flat groups."""
    nested = nest_settings(kind, settings)
    by_name = {field.name: field for field in _fields(kind)}
    for name, group in flat_groups(kind).items():
        if isinstance(nested.get(name), dict):
            default = field_default(by_name[name])
            nested[name] = group(**nested[name]) if default is MISSING else replace(default, **nested[name])
    return kind(**nested)


def field_default(field: Field[Any]) -> Any:
    """Return the default of a field, ``MISSING`` if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)
