"""Playing with what a run has learned: episodes through Gymnasium, videos of them, and datasets."""
