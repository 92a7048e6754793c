"""The user's files seen from outside: git without running the repository's code, and what is ignored."""
