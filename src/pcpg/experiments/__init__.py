"""One folder per claim of the paper: what is run (sweep), how a cell is run, what is measured and drawn (analysis)."""
