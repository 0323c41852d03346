"""Registry of all suites.

To add a suite, write its file like ``eval/webq.py``, and add the suite here.
"""

from eval.curatedtrec import CURATEDTREC
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Suite
from eval.webq import WEBQ

SUITES: dict[str, Suite] = {suite.key: suite for suite in (NQ, WEBQ, CURATEDTREC, SQUAD)}
"""All suites by their keys; tables of systems look for the files of a suite in a folder with the name of its key."""
