"""The loop on the host: rounds, checkpoints, metrics, interrupts."""
