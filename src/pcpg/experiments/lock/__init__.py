"""The combination-lock table of the paper: success over seeds of PPO, PPO+RND and PC-PG by horizon."""
