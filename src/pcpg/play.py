"""Whole episodes of a run's policies, played through Gymnasium's interface on any environment."""

import contextlib
import dataclasses
import importlib
import io
import os
import subprocess
import sys
import time
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from pcpg.api import Policy, Run, RunWarning
from pcpg.envs import registry
from pcpg.envs.adapters.names import is_own_function, takes
from pcpg.envs.adapters.worker_process import said
from pcpg.envs.drawing import INK, WHITE, canvas, font
from pcpg.envs.gymnasium_bridge import FunctionalEnv
from pcpg.envs.host import EnvironmentFailed, HostEnvironment
from pcpg.reports.figures import MOST_FRAMES, Playing, shrunk
from pcpg.runs.disk import check_output, is_folder, write_file
from pcpg.runs.errors import MissingExtra, RunError
from pcpg.runs.folder import RunFolder
from pcpg.training.trust import made_here

Which = Literal["final", "best", "cover"]


class CannotPlay(RunError):
    """An environment or a policy that cannot be played as asked."""


@dataclasses.dataclass
class Episode:
    """The record of one episode, in the environment's format."""

    policy: int  # which of the policies that were given
    seed: int  # of the environment's reset
    observations: list[Any]  # one more than the rest: the true last one is there
    actions: list[Any] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    terminated: list[bool] = dataclasses.field(default_factory=list)
    truncated: list[bool] = dataclasses.field(default_factory=list)


def playable_env(run: Run, seed: int, *, pictures: bool = False) -> gymnasium.Env:
    """The environment of a run's seed behind Gymnasium's interface, as finished policies are evaluated on it."""
    mode = "rgb_array" if pictures else None
    env = run.env.evaluation_env
    if isinstance(env, HostEnvironment):
        return _adapted_env(run, mode)
    with run.playable() as env:  # nothing to close: it is compiled
        pass
    if pictures and not env.can_render:
        raise CannotPlay(f"{run.config.env} cannot draw its states, so it has no video")
    known = {entry.id for entry in registry.spec()}
    options = {field.name: getattr(env, field.name) for field in dataclasses.fields(typing.cast(Any, env))}
    if run.config.env in known and type(registry.make(run.config.env)) is type(env):
        # With a spec, from which others can make it again.
        name = f"{FunctionalEnv.__module__}:pcpg/{run.config.env}"
        return gymnasium.make(name, instance_seed=seed, render_mode=mode, **options)
    return FunctionalEnv(env, instance_seed=seed, render_mode=mode)


def _adapted_env(run: Run, mode: str | None) -> gymnasium.Env:
    run.check_trust()
    options = dict(run.config.env_options)
    try:
        with run.given.used(run.folder):
            if mode is not None and takes(run.config.env, "render_mode"):  # a class without it may draw all the same
                options["render_mode"] = mode
            env = typing.cast(Any, registry.make(run.config.env, **options))
            made = env.make()
            env.close()  # the one that was made for its spaces
    except (TypeError, ValueError) as error:
        raise CannotPlay(f"{run.config.env} cannot be rendered: {error}") from error
    if not isinstance(made, gymnasium.Env):
        raise CannotPlay(f"{run.config.env} is a vector environment; a video needs a single one")
    if mode is not None and made.render_mode != mode:
        raise CannotPlay(
            f"{run.config.env} does not render frames: its render mode is {made.render_mode!r}, expected {mode!r}; "
            "pass its class, or a function that takes render_mode"
        )
    return made


def chosen_policies(run: Run, which: Which, seed: int | None = None) -> tuple[list[Policy], np.ndarray]:
    """The final policy of a seed, its best, or those of its cover, with the weights by which they are drawn."""
    run.check_seed(seed)
    index = 0 if seed is None else run.config.seed_list.index(seed)
    if which == "cover":
        cover = run.covers[index]  # those of kept data have weights and no policies
        return run.cover_policies(seed), np.asarray(cover.weights[: int(cover.size)])
    return [(run.best_policies if which == "best" else run.policies)[index]], np.ones(1)


def play(
    env: gymnasium.Env,
    policies: Sequence[Policy],
    weights: np.ndarray,
    episodes: int,
    *,
    greedy: bool = False,
    max_steps: int | None = None,
    first_seed: int = 0,
    watch: Callable[[Episode], None] = lambda episode: None,
) -> Iterator[Episode]:
    """Episodes of policies drawn by their weights; `watch` is called at the start and after every step.

    Episode i resets the environment with seed `first_seed + i`. The time limit `max_steps` truncates.
    """
    rng = np.random.default_rng(first_seed)
    for number in range(episodes):
        chosen = int(rng.choice(len(policies), p=weights / weights.sum()))
        with _naming(number, 0):
            observation, _ = env.reset(seed=first_seed + number)
        episode = Episode(chosen, first_seed + number, [observation])
        with _naming(number, 0):
            watch(episode)
        while not episode.actions or not (episode.terminated[-1] or episode.truncated[-1]):
            action = policies[chosen].act(episode.observations[-1], greedy=greedy)
            with _naming(number, len(episode.actions) + 1):
                observation, reward, terminated, truncated, _ = env.step(action)
            episode.observations.append(observation)
            episode.actions.append(action)
            episode.rewards.append(float(reward))
            episode.terminated.append(bool(terminated))
            is_over = max_steps is not None and len(episode.actions) >= max_steps
            episode.truncated.append(bool(truncated) or (is_over and not terminated))
            with _naming(number, len(episode.actions)):
                watch(episode)
        yield episode


@contextlib.contextmanager
def _naming(episode: int, step: int) -> Iterator[None]:
    """An exception of an environment in here says in which episode and at which step it came."""
    try:
        yield
    except Exception as error:
        raise EnvironmentFailed(said(error), {"episode": episode + 1, "step": step}) from error


FOOT = 24
"""Height of the strip with the text below each picture."""


def check_video(path: Path) -> None:
    """Refuse invalid paths before anything is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise CannotPlay(f"a video is a .gif or an .mp4 file, got {path.name!r}")
    if not is_folder(path.resolve().parent):
        raise CannotPlay(f"cannot write the video {path}: the folder {path.parent} does not exist")
    check_output(path, b"GIF8" if path.suffix == ".gif" else b"ftyp")
    if path.suffix == ".mp4":
        _ffmpeg()


def record(
    run: Run, policy: Policy, seed: int, *, episodes: int = 1, greedy: bool = False, max_frames: int = 600
) -> tuple[list[np.ndarray], list[float]]:
    """Frames of a policy's episodes, at most `max_frames`, and the returns of the episodes that they show."""
    env = playable_env(run, seed, pictures=True)
    frames: list[np.ndarray] = []
    returns: list[float] = []

    def watch(episode: Episode) -> None:
        if len(frames) < max_frames:
            text = f"episode {len(returns) + 1}   step {len(episode.actions)}   return {sum(episode.rewards):.2f}"
            frames.append(captioned(np.asarray(env.render()), text))

    limit = run.env.evaluation_env.max_steps
    try:
        for episode in play(env, [policy], np.ones(1), episodes, greedy=greedy, max_steps=limit, watch=watch):
            returns.append(sum(episode.rewards))
            if len(frames) >= max_frames:
                break
            frames += [frames[-1]] * 5  # a moment to see how the episode ended
    finally:
        env.close()
    return frames[:max_frames], returns


def film(
    run: Run, path: Path, seed: int | None, best: bool, episodes: int, greedy: bool, fps: float, max_frames: int
) -> Path:
    """Record episodes of a seed's final or best policy into a video file; its path."""
    path = path.absolute()  # before an environment runs, which may change the current folder
    check_video(path)
    [policy], _ = chosen_policies(run, "best" if best else "final", seed)
    seed = run.config.seed if seed is None else seed
    frames, _ = record(run, policy, seed, episodes=episodes, greedy=greedy, max_frames=max_frames)
    write_video(frames, path, fps)
    return path


WATCHED_STEPS, WATCHED_SECONDS = 1000, 10.0
"""Limits of the episode on a page."""


def portrait(run: Run) -> Playing | None:
    """An episode of the first seed's newest policy for the page; None where it cannot be played here and now.

    Of a folder that somebody else made, only this library's own environments are built.
    """
    is_known = run.trust or is_own_function(run.config.env) or made_here(run.folder)
    if isinstance(run.env, HostEnvironment) and not is_known:
        return None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # an environment may print
            try:
                env, can_draw = playable_env(run, run.config.seed, pictures=True), True
            except CannotPlay:
                env, can_draw = playable_env(run, run.config.seed), False
            with contextlib.closing(env):
                return _portrait(run, env, can_draw)
    except Exception:  # whatever it is, the page can do without
        return None


MOST_PORTRAITS = 4
"""Runs on one page whose policies are seen playing."""


def portraits(paths: Sequence[str | os.PathLike[str]]) -> list[Playing | None]:
    """For each run folder of a page an episode, or None; what is wrong with a folder is the page's to say."""
    found: list[Playing | None] = []
    for path in paths[:MOST_PORTRAITS]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            try:
                found.append(portrait(Run(RunFolder.open(Path(path)))))
            except (RunError, ValueError):
                found.append(None)
    return found


def _portrait(run: Run, env: gymnasium.Env, can_draw: bool) -> Playing:
    policy, began = dataclasses.replace(run.policy), time.monotonic()  # with a stream of random numbers of its own
    observations, rewards, frames, every = [env.reset(seed=run.config.seed)[0]], [], [], 1
    limit, is_over, is_cut = run.env.evaluation_env.max_steps, False, False
    while True:
        if can_draw and len(rewards) % every == 0:
            text = f"step {len(rewards)}   return {sum(rewards):.2f}"
            frames.append(captioned(shrunk(np.asarray(env.render())), text))
        if len(frames) > MOST_FRAMES:
            frames, every = frames[::2], 2 * every
        if is_over or is_cut:
            return Playing(np.stack([policy.encode(one) for one in observations]), np.array(rewards), is_cut, frames)
        observation, reward, terminated, truncated, _ = env.step(policy.act(observations[-1]))
        observations.append(observation)
        rewards.append(float(reward))
        is_over = bool(terminated or truncated or len(rewards) >= limit)
        is_cut = not is_over and (len(rewards) >= WATCHED_STEPS or time.monotonic() - began > WATCHED_SECONDS)


def captioned(picture: np.ndarray, text: str) -> np.ndarray:
    """A picture with a line of text below; sizes are even, as video formats want them."""
    from PIL import Image

    height, width = picture.shape[:2]
    wide = max(width, 260)
    image, pen = canvas(wide + wide % 2, height + FOOT + height % 2)
    image.paste(Image.fromarray(picture), ((wide - width) // 2, 0))
    pen.rectangle((0, height, image.width, image.height), fill=WHITE)
    pen.text((8, height + 5), text, fill=INK, font=font(12))
    return np.asarray(image)


def write_video(frames: Sequence[np.ndarray], path: Path, fps: float = 15.0) -> None:
    """Write pictures of one size as a GIF that repeats, or as an MP4."""
    check_video(path)
    if path.suffix == ".mp4":
        _write_mp4(frames, path, fps)
        return
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    # One palette for all frames, from samples of the whole video: colours neither flicker nor get lost.
    some = np.linspace(0, len(frames) - 1, 12).round().astype(int)
    palette = Image.fromarray(np.concatenate([frames[index] for index in some])).quantize(256)
    quantized = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    hundredths = max(2, round(100 / fps))  # the unit of time of a GIF
    buffer = io.BytesIO()
    quantized[0].save(buffer, "GIF", save_all=True, append_images=quantized[1:], duration=hundredths * 10, loop=0)
    write_file(path, buffer.getvalue())


def _write_mp4(frames: Sequence[np.ndarray], path: Path, fps: float) -> None:
    height, width = frames[0].shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    made = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    command = [_ffmpeg().get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *made]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # In one call: ffmpeg reads while this writes, and its messages are short.
        _, complaint = process.communicate(b"".join(np.ascontiguousarray(frame).tobytes() for frame in frames))
    if process.returncode:
        raise CannotPlay(f"ffmpeg could not write {path}: {complaint.decode(errors='replace').strip()}")


def _ffmpeg() -> Any:
    try:
        return importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise MissingExtra("video", "an MP4 video") from error
