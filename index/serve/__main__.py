"""Run ``python -m index.serve``."""

from index.serve.deploy import main

if __name__ == "__main__":
    main()
