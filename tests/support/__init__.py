"""Real fakes: the scripted model server, its validators, and a harness that runs the real `mcode`."""
