"""``python -m ragqa``: the command."""

from ragqa.cli import main

main()
