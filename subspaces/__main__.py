"""`python -m subspaces` is the command line."""

from subspaces.cli import main

main()
