"""The compiled answers to what Algorithm 1 asks for: roll-outs, visits and PPO, for many seeds at once."""
