"""The tools offered to the model, one module each.  Whether a call may run is decided elsewhere."""
