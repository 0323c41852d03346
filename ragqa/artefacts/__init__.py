"""Artefacts: directories with a manifest, such as indexes, pipelines and encoders.

An artefact is replaced in one step, and checked when it is opened.
"""

from ragqa.artefacts.atomic import replace_directory as replace_directory
from ragqa.artefacts.atomic import swap_into_place as swap_into_place
from ragqa.artefacts.files import create_directory as create_directory
from ragqa.artefacts.files import link_file as link_file
from ragqa.artefacts.files import replace_file as replace_file
from ragqa.artefacts.files import write_text_whole as write_text_whole
from ragqa.artefacts.manifest import CALIBRATION as CALIBRATION
from ragqa.artefacts.manifest import FORMAT as FORMAT
from ragqa.artefacts.manifest import LATER_MODEL as LATER_MODEL
from ragqa.artefacts.manifest import MANIFEST as MANIFEST
from ragqa.artefacts.manifest import MODEL as MODEL
from ragqa.artefacts.manifest import VECTORS_ARTEFACT as VECTORS_ARTEFACT
from ragqa.artefacts.manifest import Manifest as Manifest
from ragqa.artefacts.manifest import checksum as checksum
from ragqa.artefacts.manifest import is_artefact as is_artefact
from ragqa.artefacts.manifest import keep_checked as keep_checked
from ragqa.artefacts.manifest import mark_checked as mark_checked
from ragqa.artefacts.manifest import peek_manifest as peek_manifest
from ragqa.artefacts.manifest import read_manifest as read_manifest
from ragqa.artefacts.manifest import write_manifest as write_manifest
from ragqa.artefacts.orphans import sweep_orphans as sweep_orphans
from ragqa.artefacts.ownership import check_no_other_files as check_no_other_files
from ragqa.artefacts.ownership import check_replaceable as check_replaceable
from ragqa.artefacts.ownership import check_work_directory as check_work_directory
from ragqa.artefacts.ownership import find_owner_kind as find_owner_kind
from ragqa.artefacts.validation import check_count as check_count
from ragqa.artefacts.validation import report_damage as report_damage
from ragqa.artefacts.write_errors import report_write_errors as report_write_errors
