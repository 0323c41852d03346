"""Flat groups: dataclasses nested in a config whose options have no prefix.

    @dataclass(frozen=True, kw_only=True)
    class PretrainConfig(TrainingConfig):
        held_out: Annotated[HeldOutConfig, FLAT] = HeldOutConfig(eval_every=500)

The code reads ``config.held_out.dev``. The option is ``--dev`` on the command line and ``"dev"`` in a JSON file.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, TypeVar, get_type_hints

from ragqa.settings.checks import report_together

Config = TypeVar("Config")

FLAT = "flat group"
"""Annotation that makes the field of a nested dataclass a flat group."""
POSITIONAL = "positional argument"
"""Annotation that makes a field a command-line argument without a name."""


def get_flat_groups(kind: Any) -> dict[str, Any]:
    """Return the class of each flat group of the config class ``kind``, by field name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__origin__ for name, hint in hints.items() if FLAT in getattr(hint, "__metadata__", ())}


def nest_settings(kind: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of settings in which the settings of each flat group are in a dictionary.

    Args:
        kind: config class.
        settings: values by option name; a flat group can also be given whole, by its field name.
    """
    groups = get_flat_groups(kind)
    group_of = {field.name: name for name, group in groups.items() for field in fields(group)}
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        is_group = name in groups and (isinstance(value, Mapping) or is_dataclass(value))
        if name in group_of and not is_group:  # the name of a group can also be the name of one of its settings
            nested.setdefault(group_of[name], {})[name] = value
        else:
            nested[name] = value
    return nested


def list_settings(kind: Any) -> list[Field[Any]]:
    """Return the fields of the config class ``kind``, including the fields of its flat groups."""
    groups = get_flat_groups(kind)
    direct = [field for field in fields(kind) if field.name not in groups]
    return direct + [field for group in groups.values() for field in list_settings(group)]


def collect_settings(config: Any) -> dict[str, Any]:
    """Return all settings of a config by name, including the settings in flat groups."""
    groups, settings = get_flat_groups(type(config)), dict[str, Any]()
    for name, value in vars(config).items():
        settings |= collect_settings(value) if name in groups else {name: value}
    return settings


@report_together()
def replace_settings(config: Config, /, **settings: Any) -> Config:
    """Return a copy of the config with other values for some settings.

    Args:
        config: config to copy.
        settings: new values by the name of the setting, which can be in a flat group.

    Raises:
        BadInput: a value is out of range.
        TypeError: a setting is unknown.
    """
    changed: Any = config
    result: Config = replace(changed, **_build_groups(type(config), settings, vars(config)))
    return result


@report_together()
def make_config(kind: type[Config], /, **settings: Any) -> Config:
    """Make a config of class ``kind`` from settings by name, which can be in flat groups.

    Raises:
        BadInput: a value is out of range.
        TypeError: a setting is unknown, or a setting without a default is missing.
    """
    untyped: Any = kind
    defaults = {field.name: get_default(field) for field in fields(untyped)}
    return kind(**_build_groups(kind, settings, defaults))


def _build_groups(kind: Any, settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by field; a flat group copies its other settings from ``values``."""
    nested = nest_settings(kind, settings)
    for name, group in get_flat_groups(kind).items():
        if isinstance(changes := nested.get(name), dict):
            nested[name] = group(**changes) if values[name] is MISSING else replace(values[name], **changes)
    return nested


def get_default(field: Field[Any]) -> Any:
    """Return the default of a field, or ``MISSING`` if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()
