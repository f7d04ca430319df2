"""`python -m godwit`: the same as the `godwit` command."""

from godwit.cli import main

if __name__ == "__main__":
    main()
