"""An episode of a policy on the page: its frames, or its path through the two entries that tell most."""

import base64
import io
from html import escape
from typing import NamedTuple

import numpy as np

from pcpg.reports.figures import STYLES, Figure, new_chart, to_svg
from pcpg.reports.text import number

MOST_FRAMES = 48
"""Frames of an episode on the page; of a longer one every second is left out, or more."""
LARGEST = 320
"""Width and height of a frame."""


class Playing(NamedTuple):
    """An episode of the first seed's policy."""

    observations: np.ndarray  # [steps + 1, ...], as the policy sees them
    rewards: np.ndarray  # [steps]
    is_cut: bool  # whether it went on
    frames: list[np.ndarray]  # uint8 [height, width, 3]; none where the environment draws nothing


def shrunk(frame: np.ndarray) -> np.ndarray:
    """A frame that is not too large for a page."""
    from PIL import Image

    image = Image.fromarray(frame)
    image.thumbnail((LARGEST, LARGEST))
    return np.asarray(image)


def playing_figure(name: str, playing: Playing | None, seed: int) -> Figure | None:
    """The picture of an episode; None where there is none, or nothing that a picture could show."""
    if playing is None or not len(playing.rewards):
        return None
    steps = f"{len(playing.rewards):,} step{'s' * (len(playing.rewards) != 1)}"
    end = "cut here" if playing.is_cut else f"return {number(float(playing.rewards.sum()))}"
    what = f"An episode of the policy of seed {seed}: {steps}, {end}."
    if playing.frames:
        return _film(playing.frames, what)
    observations = playing.observations
    return _path(name, observations, playing.rewards, what) if observations.ndim == 2 else None


def _film(frames: list[np.ndarray], what: str) -> Figure:
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    buffer, (width, height) = io.BytesIO(), images[0].size
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=150, loop=0)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    source = f"data:image/gif;base64,{data}"
    return Figure(f'<img class="film" src="{source}" alt="{escape(what)}" width="{width}" height="{height}">', what)


def _path(name: str, observations: np.ndarray, rewards: np.ndarray, what: str) -> Figure | None:
    """The path through the two entries with the most distinct values, or through one over time."""
    seen = observations.astype(np.float64)
    values = np.array([len(np.unique(column)) for column in seen.T])
    first, second, *_ = [*np.argsort(-values, kind="stable"), 0]
    if values[first] < 2:
        return None
    is_plane = bool(first != second and values[second] > 2)
    x, y = (seen[:, first], seen[:, second]) if is_plane else (np.arange(len(seen)), seen[:, first])
    labels = (f"entry {first}", f"entry {second}") if is_plane else ("step", f"entry {first}")
    figure, axis = new_chart()
    axis.plot(x, y, "-", color=STYLES[0].color, lw=1.0, alpha=0.8)
    axis.plot(x[0], y[0], "o", color=STYLES[0].color, ms=5, label="start")
    axis.plot(x[-1], y[-1], "s", color=STYLES[1].color, ms=5, label="end")
    usual = np.median(rewards)
    if 0 < (odd := np.flatnonzero(rewards > usual + 1e-9)).size < len(rewards) / 2:
        axis.plot(x[odd + 1], y[odd + 1], "*", color=STYLES[3].color, ms=8, label="reward")
    axis.set(xlabel=f"{labels[0]}{' of the observation' if is_plane else ''}", ylabel=labels[1])
    axis.legend(loc="best")
    shown = "entries of the observation that take the most values" if is_plane else "entry that takes the most values"
    alt = f"{what} It goes from ({number(x[0])}, {number(y[0])}) to ({number(x[-1])}, {number(y[-1])})."
    return Figure(to_svg(figure, name, alt), f"{what} Its path in the {'two ' * is_plane}{shown}.")
