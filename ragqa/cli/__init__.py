"""The ``ragqa`` command: parse options, make one library call, print the result."""
