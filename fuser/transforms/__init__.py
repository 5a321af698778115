"""The transforms that users compose: derivatives and batching, over the traces of fuser.trace."""
