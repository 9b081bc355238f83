"""The algorithms of the paper's table of sample complexities, a file for each family, under one interface.

`problem` makes episodic problems, `layout` defines what a learner sees, `runner.run` counts samples and scores policies
exactly. A learner is made by its class with a layout and streams of random numbers, and keyword arguments after them
(`tables.TabularLearner` is the constructor of all but PC-PG); `registry.COMPARATORS` has them all by name, with their
rows of the table.

Each class states its constants; scale = 1 is the paper's. How sure they are:

| constants                                             | learners                                                    |
|-------------------------------------------------------|-------------------------------------------------------------|
| checked against a second source that quotes the paper | UCRL2, UCBVI (both), RLSVI, delayed Q                       |
| as we know them from the paper, not checked again     | R-max, POMD, CPI (the step)                                 |
| orders in the paper, constants open, taken as one     | E3, UCB Q (both), OPPO, LSVI-UCB, optimistic PSRL           |
| constant by our derivation                            | aggregated Q, PSDP                                          |
| none to state: priors, steps and rates are arguments  | PSRL, epsilon-greedy Q, REINFORCE, NPG, MD-MPI              |
| the main theorem's, corrected                         | PC-PG                                                       |
"""
