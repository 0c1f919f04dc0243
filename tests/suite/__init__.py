"""What `make test`, `make check` and continuous integration run, and how a failure is judged."""
