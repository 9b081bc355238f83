"""Speed on the lock and on MountainCar beside the peers', and of the design step: prints tables, writes
results/lock.json.

    python benchmarks/run.py

Each part runs in a process of its own (part.py) that may use so many cores and no more. Our part is
`ours.measure(cores)`: it returns `{setting.name: {"steps_per_second": ..., ...}}`, names as in settings.py,
updates included, compilation not. The peers run in their own environment, one core each; without it they are
left out.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from settings import HORIZON, HOST, HOST_ENV, HOST_ENVS, HOST_STEPS, MOUNTAIN_CAR, SETTINGS, MountainCarSetting, Setting

from pcpg.runs.documents import versions

HERE = Path(__file__).resolve().parent
PEERS_PYTHON = HERE / ".venv-peers" / "bin" / "python"
REJAX_PYTHON = HERE / ".venv-rejax" / "bin" / "python"
MANY_UPDATES = 100
"""Of a training whose time, compilation included, is compared with rejax's."""


def parse_arguments() -> argparse.Namespace:
    """What to measure and where to write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "lock.json", help="file to write")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure each setting of a peer")
    return parser.parse_args()


def last_line(command: list[str]) -> dict[str, Any]:
    """The JSON object on the last line that a command prints; its messages go to the terminal."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def part_in_a_process(part: str, cores: int) -> dict[str, Any]:
    """What a part measures in a process of its own."""
    return last_line([sys.executable, str(HERE / "part.py"), part, str(cores)])


def sb3_in_a_process(setting: Setting, seconds: float, env: str = "lock") -> dict[str, Any]:
    """Stable-Baselines3's PPO at one setting, in the peers' environment."""
    options = {
        "--env": env,
        "--horizon": HORIZON,
        "--batch-size": setting.batch_size,
        "--num-epochs": setting.num_epochs,
        "--seconds": seconds,
    }
    script = HERE / "peers" / "sb3_ppo.py"
    return last_line([str(PEERS_PYTHON), str(script), *(str(word) for item in options.items() for word in item)])


def rejax_in_a_process(setting: MountainCarSetting, seconds: float) -> dict[str, Any]:
    """rejax's PPO at one setting, in its own environment."""
    options = {f"--{name.replace('_', '-')}": value for name, value in setting._asdict().items()}
    words = [str(word) for item in (options | {"--seconds": seconds}).items() for word in item]
    row = last_line([str(REJAX_PYTHON), str(HERE / "peers" / "rejax_ppo.py"), *words])
    return row | {"updates_per_second": row["steps_per_second"] / (setting.num_envs * setting.num_steps)}


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def git(*words: str) -> str:
    """What git says about this tree, empty where it says nothing."""
    done = subprocess.run(["git", "-C", str(HERE), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Where and from what the numbers come."""
    arguments = [os.path.relpath(sys.argv[0], HERE.parent), *sys.argv[1:]]
    named = os.environ.get("PCPG_COMMIT")  # of an archive, of which git knows nothing
    return {
        "command": shlex.join(["python", *arguments]),
        "commit": named or git("rev-parse", "HEAD") or None,
        "uncommitted_changes": not named and bool(git("status", "--porcelain", "--untracked-files=no")),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device,
        "processor": processor(),
        "cores": usable_cores(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": versions(),
    }


def measure_all(console: Console, seconds: float) -> dict[str, Any]:
    """Everything that can be measured here, with notes on what cannot."""
    results: dict[str, Any] = {
        "provenance": provenance(),
        "horizon": HORIZON,
        "ours": {},
        "sb3": {},
        "notes": [],
    }
    if (load := results["provenance"]["load_before"] or 0.0) > 0.5:
        results["notes"].append(f"other programs were running (load {load}): rates may be too low")
    if (HERE / "ours.py").exists():
        for cores in sorted({1, usable_cores()}):
            console.print(f"pcpg on {cores} core(s) ...")
            results["ours"][str(cores)] = part_in_a_process("ours", cores)
    else:
        results["notes"].append("pcpg itself was not measured: benchmarks/ours.py is not there")
    if PEERS_PYTHON.exists():
        for setting in SETTINGS:
            console.print(f"Stable-Baselines3, {setting.name} ...")
            results["sb3"][setting.name] = sb3_in_a_process(setting, seconds)
    else:
        results["notes"].append("the peers were not measured: `make peers` makes their environment")
    console.print("pcpg on MountainCarContinuous ...")
    results["mountain_car"] = {"ours": part_in_a_process("mountain_car", 1), "rejax": {}}
    if REJAX_PYTHON.exists():
        for setting in MOUNTAIN_CAR:
            console.print(f"rejax, {setting.name} ...")
            results["mountain_car"]["rejax"][setting.name] = rejax_in_a_process(setting, seconds)
    else:
        results["notes"].append("rejax was not measured: `make peers` makes its environment")
    console.print(f"pcpg on Gymnasium's {HOST_ENV} ...")
    results["host"] = {"ours": part_in_a_process("host", 1), "sb3": {}}
    for setting in HOST if PEERS_PYTHON.exists() else ():
        console.print(f"Stable-Baselines3 on it, {setting.name} ...")
        results["host"]["sb3"][setting.name] = sb3_in_a_process(setting, seconds, HOST_ENV)
    console.print("PC-PG on the maze, on a GPU ...")
    results["gpu_maze"] = part_in_a_process("gpu_maze", usable_cores())
    if not results["gpu_maze"]:
        results["notes"].append("no GPU here: PC-PG's rate on the maze there is kept in results/gpu-maze.json")
    console.print("the design step ...")
    results["design"] = part_in_a_process("design", 1)
    return results


def speed_table(results: dict[str, Any]) -> Table:
    """Steps per second of both sides, and their ratio on one core."""
    title = f"Environment steps per second, lock H={results['horizon']}, updates included"
    table = Table("setting", title=title)
    counts = list(results["ours"]) or ["1"]
    for count in counts:
        table.add_column(f"pcpg, {count} core(s)", justify="right")
    table.add_column("SB3 PPO, 1 core", justify="right")
    table.add_column("ratio, 1 core", justify="right")
    for setting in SETTINGS:
        ours = [results["ours"].get(count, {}).get(setting.name, {}).get("steps_per_second") for count in counts]
        peer = results["sb3"].get(setting.name, {}).get("steps_per_second")
        ratio = f"{ours[0] / peer:.1f}" if ours[0] and peer else "-"
        table.add_row(setting.name, *(f"{rate:,.0f}" if rate else "-" for rate in [*ours, peer]), ratio)
    ours = [results["ours"].get(count, {}).get("pcpg", {}).get("steps_per_second") for count in counts]
    table.add_row("PC-PG, its own settings", *(f"{rate:,.0f}" if rate else "-" for rate in ours), "-", "-")
    return table


def mountain_car_table(results: dict[str, Any]) -> Table:
    """PPO beside rejax's on one core: ours / rejax's / their ratio, compilation apart and included."""
    table = Table("setting", title="PPO on MountainCarContinuous, 64x64, 10 epochs of 32 minibatches, 1 core")
    columns = ("updates/s", "steps/s", "compilation, s", f"{MANY_UPDATES} updates with it, s")
    for name in columns:
        table.add_column(f"{name}: pcpg / rejax", justify="right")
    for name, row in results["mountain_car"]["ours"].items():
        sides = [row, results["mountain_car"]["rejax"].get(name)]
        table.add_row(name, *(_beside([values[column] for values in map(_costs, sides)]) for column in range(4)))
    return table


def _costs(row: dict[str, Any] | None) -> list[float | None]:
    """Updates and steps per second, seconds of compilation, and of many updates with it."""
    if row is None:
        return [None] * 4
    rate, compilation = row["updates_per_second"], row["compile_seconds"]
    return [rate, row["steps_per_second"], compilation, compilation + MANY_UPDATES / rate]


def _beside(values: list[float | None]) -> str:
    return " / ".join("-" if value is None else f"{value:,.{0 if value > 100 else 1}f}" for value in values)


def host_table(results: dict[str, Any]) -> Table:
    """Steps per second on an environment of Gymnasium's, stepped on the host, and the ratio."""
    title = f"Environment steps per second, {HOST_ENV}, {HOST_ENVS} x {HOST_STEPS} steps an update, 1 core"
    table = Table("setting", title=title)
    for name in ("pcpg", "SB3 PPO", "ratio"):
        table.add_column(name, justify="right")
    for setting in HOST:
        sides = [results["host"][side].get(setting.name, {}).get("steps_per_second") for side in ("ours", "sb3")]
        ratio = f"{sides[0] / sides[1]:.1f}" if all(sides) else "-"
        table.add_row(setting.name, *(f"{rate:,.0f}" if rate else "-" for rate in sides), ratio)
    return table


def cost_table(results: dict[str, Any]) -> Table:
    """Seconds of compilation, cold and from the cache, and the peak memory of the process."""
    table = Table("cores", title="pcpg: compilation and memory")
    for name in ("PPO cold, s", "PPO warm, s", "PC-PG cold, s", "PC-PG warm, s", "peak memory, MB"):
        table.add_column(name, justify="right")
    for count, ours in results["ours"].items():
        ppo, pcpg = ours[SETTINGS[0].name], ours["pcpg"]
        seconds = [row[f"compile_seconds_{kind}"] for row in (ppo, pcpg) for kind in ("cold", "warm")]
        table.add_row(count, *(f"{value:.1f}" for value in seconds), f"{ours['peak_memory_mb']:,}")
    return table


def gpu_table(results: dict[str, Any]) -> Table:
    """Steps per second of PC-PG on mazes of size 20 on a GPU, or a line that says there is none."""
    table = Table("device", title="PC-PG from pixels, mazes of size 20 with the paper's networks, updates included")
    for name in ("seeds at once", "steps/s, all seeds", "compilation, s"):
        table.add_column(name, justify="right")
    row = results["gpu_maze"]
    if row:
        rate, compilation = f"{row['steps_per_second']:,.0f}", f"{row['compile_seconds']:.1f}"
        table.add_row(row["device"], str(row["seeds"]), rate, compilation)
    else:
        table.add_row("no GPU here", "-", "-", "-")
    return table


def design_table(results: dict[str, Any]) -> Table:
    """Seconds and gap of the design step, and of the paper's 2,000 steps of Adam."""
    table = Table("design of", title="D-optimal weights, 1 core")
    columns = ("seconds", "gap", "adam_seconds", "adam_gap")
    for name in ("seconds", "gap, nats", "Adam, seconds", "Adam's gap, nats"):
        table.add_column(name, justify="right")
    for name, row in results["design"].items():
        table.add_row(name, *(f"{row[column]:.2g}" if column in row else "-" for column in columns))
    return table


def main() -> None:
    """Measure everything, print it and write it."""
    arguments = parse_arguments()
    console = Console()
    results = measure_all(console, arguments.seconds)
    console.print(speed_table(results))
    console.print(mountain_car_table(results))
    console.print(host_table(results))
    console.print(gpu_table(results))
    console.print(cost_table(results))
    console.print(design_table(results))
    for note in results["notes"]:
        console.print(f"Note: {note}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"Written to {os.path.relpath(arguments.out)}")


if __name__ == "__main__":
    main()
