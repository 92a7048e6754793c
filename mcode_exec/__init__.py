"""mcode-exec: a headless coding-agent job runner. Rooms and their arrows are drawn in docs/design.md."""
