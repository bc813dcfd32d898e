"""A kernel whose import fails as a missing shared library would."""

raise OSError("libfake.so.1: cannot open\nshared object {file}")
