"""``python -m ragqa``: the command."""

from ragqa.cli.main import main

main()
