"""Entry point of `python -m hf_posenc`, which runs the same command line as `hf-posenc`."""

from .cli import main

if __name__ == "__main__":
    main()
