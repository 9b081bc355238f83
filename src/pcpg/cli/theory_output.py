"""How commands of the theory hand over their results: values that JSON can hold, tables on standard error."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

Result = dict[str, Any]


def finish(result: Result, out: Path | None) -> Result:
    """Return the result as JSON holds it, after writing it to `out`; printing is the command line's."""
    result = clean(result)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, allow_nan=False) + "\n")
    return result


def clean(value: Any) -> Any:
    """Return the value with NumPy types as Python ones, and what JSON cannot hold (inf, nan) as None."""
    if isinstance(value, dict):
        return {str(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return clean(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def table(title: str, *columns: str) -> Any:
    """Return an empty rich table."""
    from rich.table import Table

    made = Table(title=title)
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right")
    return made


def show(made: Any) -> None:
    """Print a table on standard error."""
    from rich.console import Console

    Console(stderr=True).print(made)
