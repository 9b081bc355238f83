"""Levels of MiniGrid that papers name and MiniGrid does not register, by ids of ours.

gymnasium:pcpg_lab.envs.levels:MultiRoom-N7-S4-v0            MultiRoomEnv(7, 7, 4): seven rooms of at most 4 x 4
gymnasium:pcpg_lab.envs.levels:KeyCorridorS3R2-Pictures-v0   the same view as a picture of 56 x 56 pixels
"""

import importlib

import gymnasium

MULTIROOMS = ((7, 4), (10, 4), (7, 8), (12, 10))
"""Rooms, and the largest size of one."""
PICTURES = ("KeyCorridorS3R2", "MultiRoom-N2-S4")
"""Levels of MiniGrid whose views are pictures here."""


def pictures(name: str) -> gymnasium.Env:
    """A level of MiniGrid whose observation is a picture of the agent's view, and nothing else."""
    wrappers = importlib.import_module("minigrid.wrappers")
    return wrappers.ImgObsWrapper(wrappers.RGBImgPartialObsWrapper(gymnasium.make(f"MiniGrid-{name}-v0")))


for rooms, size in MULTIROOMS:
    if (name := f"MultiRoom-N{rooms}-S{size}-v0") not in gymnasium.registry:
        options = {"minNumRooms": rooms, "maxNumRooms": rooms, "maxRoomSize": size}
        gymnasium.register(name, entry_point="minigrid.envs:MultiRoomEnv", kwargs=options)
for name in PICTURES:
    if (id_ := f"{name}-Pictures-v0") not in gymnasium.registry:
        gymnasium.register(id_, entry_point=f"{__name__}:pictures", kwargs={"name": name})
