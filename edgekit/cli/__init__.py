"""The command line: it parses, calls the library and shows. It computes nothing."""
