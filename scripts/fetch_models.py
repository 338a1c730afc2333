"""The same as `localmem models pull`: fetches models by name, the starters when no name is given."""

import sys

from localmem.cli import main

if __name__ == "__main__":
    sys.argv = ["localmem", "models", "pull", *(sys.argv[1:] or ["starters"])]
    main()
