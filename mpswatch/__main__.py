"""`python -m mpswatch` is the command `mpswatch`."""

from mpswatch.cli import main

if __name__ == "__main__":
    main()
