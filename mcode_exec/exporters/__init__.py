"""Documents of other programs, made of display messages: one module per program.  They know no store."""
