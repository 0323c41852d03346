"""Entry point of ``python -m ragqa``."""

from ragqa.cli.main import main

main()
