"""``python -m edgekit``: the command line."""

from edgekit.cli.main import main

if __name__ == "__main__":
    main()
