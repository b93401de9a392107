"""`python -m latchguard`: the command line where the script is not on the path."""

from latchguard.cli.main import main

main()
