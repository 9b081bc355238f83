"""The paper's table of sample complexities, measured: exploration, misspecified aggregation, the binary tree."""
