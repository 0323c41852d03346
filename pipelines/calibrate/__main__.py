"""Calibrate a reader's confidence on held-out questions: ``python -m pipelines.calibrate``."""

from pipelines.calibrate.fit import main

if __name__ == "__main__":
    main()
