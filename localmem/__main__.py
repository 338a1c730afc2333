"""`python -m localmem` is the `localmem` command."""

from localmem.cli import main

main()
