"""Registry of all suites.

To add a suite, write its file like ``eval/webq.py``, and add the suite here.
"""

from eval.curatedtrec import CURATEDTREC
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Suite
from eval.webq import WEBQ

SUITES: dict[str, Suite] = {suite.key: suite for suite in (NQ, WEBQ, CURATEDTREC, SQUAD)}
"""All suites by their keys, which are also the names of their folders in the data of ``eval.systems``."""
