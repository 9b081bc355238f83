"""Environments of others and of our own for the experiments; nothing here is imported before it is asked for."""
