"""How fast a model, a step, an input stream or an index is on this machine."""
