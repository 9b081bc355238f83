"""Other people's environments with default settings: what PC-PG solves, and PPO with as many steps."""
