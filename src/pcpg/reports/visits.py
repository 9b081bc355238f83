"""Where the policies of a cover went: visits by cell, as numbers and as a picture."""

import dataclasses
from pathlib import Path

import numpy as np

from pcpg.envs.protocol import CellGrid
from pcpg.envs.registry import make
from pcpg.runs import checkpoints
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class CoverVisits:
    """Visits of each member of one seed's cover, with its weight and mean return."""

    seed: int
    grid: CellGrid
    counts: np.ndarray  # [members, panels, rows, columns]
    weights: np.ndarray  # [members]
    returns: np.ndarray  # [members]

    @property
    def mixture(self) -> np.ndarray:
        """Shares of the visits of the weighted cover, [panels, rows, columns]."""
        shares = self.counts / np.maximum(self.counts.sum(axis=(1, 2, 3), keepdims=True), 1)
        return np.tensordot(self.weights, shares, 1)

    @property
    def covered(self) -> float:
        """Share of all cells that some member visited; 0 where there are none."""
        return float(np.mean(self.counts.sum(axis=0) > 0)) if self.grid.size else 0.0


def read_visits(folder: RunFolder, seed: int) -> CoverVisits:
    """The visits of one seed's cover, from the member files of a run; an empty grid where no cells are counted."""
    env = make(folder.config["env"], **folder.config["env_options"])
    grid = env.cells or CellGrid((), (), ())
    checkpoint = checkpoints.load_latest(folder.checkpoints)
    size_name = f"{seed}/.cover.size"
    if checkpoint is not None and size_name not in checkpoint.arrays:
        raise NotARun(f"{folder.path} holds no cover: {folder.config['algo']} keeps none")
    size = 0 if checkpoint is None else int(checkpoint.arrays[size_name])
    if checkpoint is None or size == 0:
        raise NotARun(f"{folder.path}: the cover of seed {seed} has no member yet")
    hashes = checkpoint.state["members"]
    files = [folder.read_member(index, hashes[index]) for index in range(size)]
    explored = env.dynamics_seed(seed)
    counts = np.stack([arrays[f"{explored}/.cells"] for arrays in files]).reshape(size, *grid.shape)
    returns = np.array([arrays[f"{explored}/.returns"].mean(dtype=np.float64) for arrays in files])
    weights = checkpoint.arrays[f"{seed}/.cover.weights"][:size]
    return CoverVisits(seed, grid, counts, weights, returns)


def draw_visits(visits: CoverVisits, path: Path, max_policies: int = 11) -> None:
    """A picture of the visits of the heaviest members and of the weighted cover, written to `path`."""
    if not visits.grid.size:
        raise NotARun("the environment has no cells to draw; `pcpg report` draws its features instead")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    order = sorted(np.argsort(-visits.weights, kind="stable")[:max_policies].tolist())
    pictures = [(f"policy {i}\nweight {visits.weights[i]:.2f}", visits.counts[i]) for i in order]
    pictures.append(("weighted cover", visits.mixture))
    panels, rows, columns = visits.grid.shape
    width = max(1.2, 0.22 * columns)
    height = max(0.5, 0.22 * rows)
    figure, axes = plt.subplots(
        len(pictures),
        panels,
        figsize=(1.6 + panels * (width + 0.2), 0.7 + len(pictures) * (height + 0.18)),
        squeeze=False,
        layout="constrained",
    )
    for line, (name, counts) in zip(axes, pictures, strict=True):
        share = counts / max(counts.sum(), 1e-12)
        for panel, axis in enumerate(line):
            axis.imshow(np.sqrt(share[panel]), cmap="viridis", vmin=0, vmax=np.sqrt(share.max()), aspect="auto")
            axis.set_xticks([])
            axis.set_yticks(range(rows) if rows <= 4 and panel == 0 else [])
            if rows <= 4 and panel == 0:
                axis.set_yticklabels(visits.grid.rows, fontsize=6)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, labelpad=30 if rows <= 4 else 4)
    for panel, name in enumerate(visits.grid.panels):
        axes[0][panel].set_title(name, fontsize=9)
    figure.suptitle(f"Visits of the cover, seed {visits.seed} (colour: square root of the share)", fontsize=9)
    figure.savefig(path, dpi=160)
    plt.close(figure)
