"""Run ``python -m index.serve``."""

from index.serve.app import main

if __name__ == "__main__":
    main()
