"""Jobs that embed, build, refresh and serve an index, with or without Ray."""
