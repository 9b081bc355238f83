"""MountainCar with continuous actions: return against environment steps of PC-PG, PPO+RND and PPO."""
