"""`python -m onbudget` is the command `onbudget`."""

from onbudget.cli.main import main

if __name__ == "__main__":
    main()
