"""Artefacts: directories with a manifest, replaced in one step and checked when opened."""

from ragqa.artefacts.atomic import (
    check_no_other_files,
    check_replaceable,
    replace_directory,
    report_write_errors,
    restore_interrupted_swap,
    swap_into_place,
    write_text_whole,
)
from ragqa.artefacts.manifest import (
    CALIBRATION,
    FORMAT,
    MANIFEST,
    Manifest,
    checksum,
    is_artefact,
    keep_checked,
    mark_checked,
    peek_manifest,
    read_manifest,
    write_manifest,
)

__all__ = [
    "CALIBRATION",
    "FORMAT",
    "MANIFEST",
    "Manifest",
    "check_no_other_files",
    "check_replaceable",
    "checksum",
    "is_artefact",
    "keep_checked",
    "mark_checked",
    "peek_manifest",
    "read_manifest",
    "replace_directory",
    "report_write_errors",
    "restore_interrupted_swap",
    "swap_into_place",
    "write_manifest",
    "write_text_whole",
]
