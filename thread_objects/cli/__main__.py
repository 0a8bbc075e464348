"""`python -m thread_objects.cli`."""

from thread_objects.cli import main

main()
