"""A video of a policy: GIF by Pillow, MP4 by ffmpeg through the extra `video`."""

import importlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.api import Policy, Run
from pcpg.envs.drawing import INK, WHITE, canvas, font
from pcpg.play.episodes import CannotPlay, Episode, play, playable_env
from pcpg.runs.errors import MissingExtra

FOOT = 24
"""Height of the strip with the text below each picture."""


def check_video(path: Path) -> None:
    """Refuse what cannot be written, before anything is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise CannotPlay(f"a video is a .gif or an .mp4 file, got {path.name!r}")
    if not path.resolve().parent.is_dir():
        raise CannotPlay(f"{path}: there is no folder {path.parent} to put the video into")
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
    quantized[0].save(path, save_all=True, append_images=quantized[1:], duration=hundredths * 10, loop=0)


def _write_mp4(frames: Sequence[np.ndarray], path: Path, fps: float) -> None:
    height, width = frames[0].shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    made = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    command = [_ffmpeg().get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, *made]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # In one call: ffmpeg reads while this writes, and its messages are short.
        _, complaint = process.communicate(b"".join(np.ascontiguousarray(frame).tobytes() for frame in frames))
    if process.returncode:
        raise CannotPlay(f"{path}: ffmpeg could not write it: {complaint.decode(errors='replace').strip()}")


def _ffmpeg() -> Any:
    try:
        return importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise MissingExtra("video", "an MP4 video") from error
