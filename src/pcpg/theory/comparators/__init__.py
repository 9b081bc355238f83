"""The algorithms of the paper's table of sample complexities, one file each, under one interface.

`problem` makes episodic problems, `layout` says what a learner sees, `runner.run` counts samples and scores policies
exactly. A learner is made by its class with a layout and streams of random numbers, and keyword arguments after them;
`registry.COMPARATORS` has them all by name, with their rows of the table.
"""
