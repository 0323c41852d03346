"""Table of the suites.

To add a suite, write its file like ``eval/webq.py`` and add it here.
"""

from eval.curatedtrec import CURATEDTREC
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Suite
from eval.webq import WEBQ

SUITES: dict[str, Suite] = {suite.key: suite for suite in (NQ, WEBQ, CURATEDTREC, SQUAD)}
"""All suites by their keys. The tables of systems find the files of a suite in a folder with the name of its key."""
