"""The ``ragqa`` command: parse options, call the library, print the result."""
