"""Mazes from pixels without reward: share of the open cells visited by PC-PG, PPO+RND and PPO."""
