"""Downloads models by name, by default the starters. The same as `localmem models pull`."""

import sys

from localmem.cli import main

if __name__ == "__main__":
    sys.argv = ["localmem", "models", "pull", *(sys.argv[1:] or ["starters"])]
    main()
