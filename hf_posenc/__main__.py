"""`python -m hf_posenc`: the same as `hf-posenc`."""

from .cli import main

if __name__ == "__main__":
    main()
