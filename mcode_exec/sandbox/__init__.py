"""Commands of the model: their environment, their process trees, their output.  Judges nothing."""
