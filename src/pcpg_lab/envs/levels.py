"""Levels of MiniGrid that papers name and MiniGrid does not register, by ids of ours.

gymnasium:pcpg_lab.envs.levels:MultiRoom-N7-S4-v0      MultiRoomEnv(7, 7, 4): seven rooms of at most 4 x 4
"""

import gymnasium

MULTIROOMS = ((7, 4), (10, 4), (7, 8), (12, 10))
"""Rooms, and the largest size of one."""

for rooms, size in MULTIROOMS:
    if (name := f"MultiRoom-N{rooms}-S{size}-v0") not in gymnasium.registry:
        options = {"minNumRooms": rooms, "maxNumRooms": rooms, "maxRoomSize": size}
        gymnasium.register(name, entry_point="minigrid.envs:MultiRoomEnv", kwargs=options)
