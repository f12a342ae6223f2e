"""`python -m mpswatch.client`; the zipapp's own entry point does the same."""

from .launcher import main

if __name__ == "__main__":
    main()
