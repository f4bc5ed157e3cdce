"""`python -m tmde` is the `tmde` command; `accelerate launch -m tmde train ...` needs this form."""

from tmde.cli.main import main

# Processes that are spawned import this module again, and must not run the command again.
if __name__ == "__main__":
    main()
