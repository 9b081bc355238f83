"""Programs and episodes, independent of the algorithm."""
