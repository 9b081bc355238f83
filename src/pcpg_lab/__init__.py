"""The laboratory: sweeps over many runs, and every claim from one command."""
