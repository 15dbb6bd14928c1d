"""Functions that every room may use: wording of errors, files, integers, versions of libraries, calls of tutorials."""
