"""Many cells, on the cores of this machine or on those of many: a plan, engines, leases, and results."""
