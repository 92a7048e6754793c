"""One invocation, one result: the only room where the others are put together."""
