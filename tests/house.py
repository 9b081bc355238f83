"""The rules of the house and its sizes, counted from the tree: `python -m tests.house`.

It fails where a rule is broken. Sizes are printed beside their goals and fail nothing.
"""

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGES = ("pcpg", "pcpg_theory", "pcpg_lab")

# Rule 1: imports go one way. What each part of pcpg may import besides itself; a part is a folder or a file.
GROUND = {"envs", "features", "policies", "cover", "shapes", "machine", "config"}
ROOMS = GROUND | {"state", "budget", "engine", "learners", "bonuses", "kernel", "data"}
PROTOCOL = ROOMS | {"algorithm1", "algorithms", "trees"}
TRAINING = PROTOCOL | {"presets", "run_config", "runs", "training"}
MAY_IMPORT: dict[str, set[str]] = {
    "shapes": set(),
    "machine": set(),
    "envs": {"shapes", "config", "machine"},
    "features": GROUND,
    "policies": GROUND,
    "cover": GROUND,
    "other_names": set(),
    "config": {"other_names"},
    "state": {"config"},
    "budget": {"config", "state"},
    "engine": ROOMS,
    "learners": ROOMS,
    "bonuses": ROOMS,
    "kernel": ROOMS,
    "data": ROOMS,
    "algorithm1": set(),
    "algorithms": ROOMS,
    "algos": PROTOCOL,
    "runs": {"machine", "config"},
    "trees": {"runs"},  # its errors
    "presets": PROTOCOL | {"algos"},  # settings for the paper's environments
    "run_config": TRAINING | {"elsewhere"},
    "training": TRAINING,
    "elsewhere": {"config", "other_names"},
    "policy": GROUND | {"elsewhere"},
    "portable": GROUND | {"policy", "runs"},
    "run": TRAINING | {"policy", "elsewhere", "reports"},
    "callbacks": TRAINING | {"policy", "elsewhere"},
    "settings": set(),  # types
    "api": TRAINING | {"run", "policy", "elsewhere", "settings"},
    "pcpg": TRAINING | {"run", "callbacks", "api", "elsewhere", "reports", "settings"},  # the public names
    "reports": {"config", "runs", "algorithms", "state", "envs"},
    "play": GROUND | {"runs", "run", "api", "training", "reports"},
    "hub": TRAINING | {"policy", "reports", "run"},
    "theory": set(),  # the lazy alias of pcpg_theory
    "cli": TRAINING | {"other_names", "pcpg", "api", "run", "reports", "play", "elsewhere"},
    "__main__": {"cli"},
}
PACKAGES_BELOW = {"pcpg": set(), "pcpg_theory": {"pcpg"}, "pcpg_lab": {"pcpg", "pcpg_theory"}}

# Where an import may go up, or in a circle: (importing file, imported module), with the reason.
ALLOWED_IMPORTS: dict[tuple[str, str], str] = {
    ("pcpg/run_config.py", "pcpg.algos.auto"): "the choice among all algorithms, no algorithm itself",
    ("pcpg/run_config.py", "pcpg.algos.look"): "what the choice has seen, as lines",
    ("pcpg/cli/inspect.py", "pcpg.algos.auto"): "the command that shows the choice",
    ("pcpg/cli/inspect.py", "pcpg.algos.look"): "the command that shows the choice",
    ("pcpg_lab/claims/environments.py", "pcpg.algos.auto"): "the claim about the choice",
}
# Rooms of one level may know each other; these pairs do both ways, with the reason.
ALLOWED_CIRCLES: dict[frozenset[str], str] = {}

# Rule 2: outside algos/ no file names a settings class, a state of one algorithm, an array of a checkpoint, or the id
# of an algorithm. Files that may, with the reason; the laboratory and the theory may name ids, and nothing else.
ALLOWED_NAMES: dict[str, str] = {
    "pcpg/presets.py": "settings for the paper's environments",
    "pcpg/algorithms.py": "the table, whose homes are strings",
}
MAY_NAME_IDS = ("pcpg_lab/", "pcpg_theory/")

# The files of one round of PC-PG, in the order in which it crosses them; then those in which its parts are computed.
ROUND = ["engine/together", "algos/pcpg", "algorithm1", "algos/on_policy", "learners/ppo", "algos/rounds"]
BENEATH = [
    "algos/pcpg_settings",
    "engine/program",
    "engine/rollout",
    "engine/play",
    "cover/cover",
    "cover/bonus",
    "cover/design",
    "state",
]

LONGEST_FILE, LONGEST_FUNCTION, DUPLICATE_LINES = 350, 60, 6
ASKING, PRIVATE = {"isinstance", "hasattr", "getattr"}, {"agent", "settings", "state", "own"}
PLAIN = {"dict", "str", "Mapping"}
SAYING = ast.Constant | ast.Compare | ast.Call | ast.keyword | ast.Dict | ast.Assign


class Place(NamedTuple):
    """A line of the source."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


# Reading.


@functools.cache
def files() -> dict[str, str]:
    """The text of every source file, by its path below src/."""
    found = (path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py")))
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in found}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every source file, parsed."""
    return {file: ast.parse(text, file) for file, text in files().items()}


def part_of(module: str) -> str:
    """`pcpg.envs.lock` belongs to `envs`, `pcpg.train` to `pcpg`; the other packages are parts themselves."""
    package, *rest = module.split(".")
    if package != "pcpg":
        return package
    is_part = rest and ((SOURCE / "pcpg" / rest[0]).is_dir() or (SOURCE / "pcpg" / f"{rest[0]}.py").exists())
    return rest[0] if is_part else "pcpg"


def module_of(file: str) -> str:
    """The dotted name under which a file is imported."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def part_of_file(file: str) -> str:
    """The part that a file belongs to."""
    return part_of(module_of(file))


@functools.cache
def imports_of(file: str) -> tuple[tuple[int, str], ...]:
    """Lines and modules of the three packages that a file imports, at its top or inside a function."""
    package = module_of(file).split(".") if file.endswith("__init__.py") else module_of(file).split(".")[:-1]
    found: list[tuple[int, str]] = []
    for node in ast.walk(trees()[file]):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            # `from pcpg import envs` names a part; `from pcpg.envs import lock` has named it already.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "pcpg" else [base]
            found += [(node.lineno, name) for name in names]
    return tuple((line, name) for line, name in found if name.split(".")[0] in PACKAGES)


# Rule 1.


def is_allowed(part: str, other: str) -> bool:
    """Whether one part may import another."""
    package, of = (name if name in PACKAGES[1:] else "pcpg" for name in (part, other))
    if package == of == "pcpg":
        return other == part or other in MAY_IMPORT.get(part, set())
    return of == package or (of in PACKAGES_BELOW[package] and other not in ("algos", "__main__"))


def wrong_imports() -> list[Place]:
    """Imports against the order."""
    return [
        Place(file, line, f"{part_of_file(file)} may not import {module}")
        for file in files()
        for line, module in imports_of(file)
        if not is_allowed(part_of_file(file), part_of(module)) and (file, module) not in ALLOWED_IMPORTS
    ]


def circles() -> list[str]:
    """Parts that import each other, directly or through others, with no reason given."""
    known: dict[str, set[str]] = defaultdict(set)
    for file in files():
        part = part_of_file(file)
        for _, module in imports_of(file):
            other = part_of(module)
            if other != part and (file, module) not in ALLOWED_IMPORTS:
                known[part] |= {other} - {other for pair in ALLOWED_CIRCLES if pair == {part, other}}
    remaining = {part: known[part] for part in {part_of_file(file) for file in files()}}
    while leaves := {part for part, others in remaining.items() if not others & remaining.keys()}:
        remaining = {part: others for part, others in remaining.items() if part not in leaves}
    return sorted(remaining)


def without_place() -> list[str]:
    """Folders and files of pcpg of which the order does not say what they may import."""
    return sorted({part_of_file(file) for file in files()} - MAY_IMPORT.keys() - set(PACKAGES))


# Rule 2.


@functools.cache
def own_classes() -> frozenset[str]:
    """Classes that are defined in algos/ and nowhere else: settings, states and agents."""
    inside: set[str] = set()
    outside: set[str] = set()
    for file, tree in trees().items():
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        named = {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
        if file.startswith("pcpg/algos/"):
            inside |= found
        else:
            outside |= found | named
    return frozenset(inside - outside)


@functools.cache
def own_arrays() -> frozenset[str]:
    """Names of arrays that belong to one algorithm, such as `.log_dets`: the fields of tuples of algos/ alone."""
    inside: set[str] = set()
    outside: set[str] = set()
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.unparse(base) for base in node.bases):
                fields = {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}
                (inside if file.startswith("pcpg/algos/") else outside).update(fields)
    return frozenset(inside - outside)


@functools.cache
def ids() -> frozenset[str]:
    """The ids of all algorithms."""
    tree = trees()["pcpg/algorithms.py"]
    table = next(
        node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and "ALGORITHMS" in ast.unparse(node)
    )
    assert isinstance(table, ast.Dict)
    return frozenset(key.value for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def asking(file: str, tree: ast.Module) -> Iterator[Place]:
    """Lines of a file that ask which algorithm it is."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name | ast.Attribute | ast.alias):
            name = ast.unparse(node).split(" as ")[0].split(".")[-1]
            if name in own_classes():
                yield Place(file, line, f"names {name}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKING:
            asked, what = map(ast.unparse, node.args[:2])
            by_name = what.startswith("'")  # else it is no name of a field, or a type
            if asked.split(".")[-1] in PRIVATE and (by_name or (node.func.id == "isinstance" and what not in PLAIN)):
                yield Place(file, line, f"asks {ast.unparse(node)}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.match(r"\.(\w+)(?=\.|$)", node.value)
            if found and found[1] in own_arrays():
                yield Place(file, line, f"names the array {node.value!r}")
        if isinstance(node, SAYING) and not file.startswith(MAY_NAME_IDS):
            yield from (Place(file, line, f"names the id {name!r}") for name in named_ids(node))


def named_ids(node: ast.AST) -> Iterator[str]:
    """The ids that an expression names; `pcpg` and `ppo` are words of their own unless an `algo` stands beside them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value in ids() and "-" in node.value:
            yield node.value
        return
    about: Sequence[ast.AST] = ()
    if isinstance(node, ast.Compare):
        about = [node] if "algo" in ast.unparse(node) else ()
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("startswith"):
        about = node.args if "algo" in ast.unparse(node.func) else ()
    elif isinstance(node, ast.keyword) and node.arg == "algo":
        about = [node.value]
    elif isinstance(node, ast.Dict):
        entries = zip(node.keys, node.values, strict=True)
        about = [value for key, value in entries if isinstance(key, ast.Constant) and key.value == "algo"]
    elif isinstance(node, ast.Assign) and "algo" in ast.unparse(node.targets[0]):
        about = [node.value]
    leaves = (leaf.value for part in about for leaf in ast.walk(part) if isinstance(leaf, ast.Constant))
    yield from (str(value) for value in leaves if value in ids() and "-" not in str(value))


@functools.cache
def places() -> tuple[Place, ...]:
    """Every line outside algos/ that asks which algorithm it is: one place each."""
    found = {
        (place.file, place.line): place
        for file in files()
        if not file.startswith("pcpg/algos/") and file not in ALLOWED_NAMES
        for place in asking(file, trees()[file])
    }
    return tuple(sorted(found.values()))


def unused_exceptions() -> list[str]:
    """Exceptions that nothing needs any more."""
    imports = {(file, module) for file in files() for _, module in imports_of(file)}
    parts = {(part_of_file(file), part_of(module)) for file, module in imports}
    both = [pair for pair in ALLOWED_CIRCLES if all(two in parts for two in (tuple(pair), tuple(pair)[::-1]))]
    return [
        *(f"{file} imports {module}" for file, module in ALLOWED_IMPORTS if (file, module) not in imports),
        *(" and ".join(sorted(pair)) for pair in ALLOWED_CIRCLES if pair not in both),
        *(file for file in ALLOWED_NAMES if file not in files() or not any(asking(file, trees()[file]))),
    ]


def missing_files() -> list[str]:
    """Files of a round of PC-PG that there are not."""
    return [f"pcpg/{name}.py" for name in ROUND + BENEATH if f"pcpg/{name}.py" not in files()]


@functools.cache
def broken() -> list[str]:
    """Every rule that is broken, with its place."""
    return [
        *map(str, wrong_imports()),
        *map(str, places()),
        *([f"a circle of imports among {', '.join(circles())}"] if circles() else []),
        *(f"MAY_IMPORT has no place for {part}" for part in without_place()),
        *(f"an exception that nothing needs: {text}" for text in unused_exceptions()),
        *(f"there is no {file}, a file of a round" for file in missing_files()),
    ]


# Sizes.


def lines_of(*names: str) -> int:
    """Lines of the files below these paths."""
    return sum(len(text.splitlines()) for file, text in files().items() if file.startswith(names))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, decorators aside."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def long_functions() -> list[Place]:
    """Functions of more lines than there should be."""
    return [
        Place(file, node.lineno, f"{node.name} has {length(node)} lines")
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > LONGEST_FUNCTION
    ]


def lines_with(pattern: str) -> int:
    """Lines of all sources in which a pattern is found."""
    return sum(bool(re.search(pattern, line)) for text in files().values() for line in text.splitlines())


def duplicates() -> int:
    """Pairs of places that share six or more lines, imports, comments and blank lines aside."""
    where: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for file, text in files().items():
        lines = [" ".join(line.split()) for line in text.splitlines()]
        kept = [line for line in lines if len(line) > 1 and not line.startswith(("#", "import ", "from "))]
        for start in range(len(kept) - DUPLICATE_LINES + 1):
            where[tuple(kept[start : start + DUPLICATE_LINES])].append((file, start))
    pairs = {
        (one, other) for found in where.values() for index, one in enumerate(found) for other in found[index + 1 :]
    }
    return sum(((a, i - 1), (b, j - 1)) not in pairs for (a, i), (b, j) in pairs)


def sizes() -> list[tuple[str, int | str, str]]:
    """What is counted, how much there is, and the goal."""
    core, theory, lab = (lines_of(f"{package}/") for package in PACKAGES)
    count = Counter(file.split("/")[0] for file in files())
    longer = [file for file in files() if lines_of(file) > LONGEST_FILE]
    of_round, beneath = (sum(lines_of(f"pcpg/{name}.py") for name in names) for names in (ROUND, BENEATH))
    where = len({place.file for place in places()})
    return [
        ("lines outside algos/ that ask which algorithm it is", f"{len(places())} in {where} files", "0"),
        ("lines of pcpg", core, "18,500"),
        ("lines of pcpg_theory", theory, ""),
        ("lines of pcpg_lab", lab, ""),
        ("lines of all three", core + theory + lab, "30,500"),
        ("files", f"{len(files())} ({', '.join(f'{name} {count[name]}' for name in PACKAGES)})", "180"),
        (f"files over {LONGEST_FILE} lines", f"{len(longer)} {' '.join(longer)}".strip(), "0"),
        (f"functions over {LONGEST_FUNCTION} lines", len(long_functions()), "0"),
        ("pyright ignores", lines_with("pyright: ignore"), "8"),
        ("lines with Any", lines_with(r"\bAny\b"), "450"),
        (f"pairs of places that share {DUPLICATE_LINES} lines or more", duplicates(), ""),
        ("files to read for one round of PC-PG", f"{len(ROUND)} ({of_round:,} lines)", "6 (1,500)"),
        ("files in which its parts are computed", f"{len(BENEATH)} ({beneath:,} lines)", ""),
    ]


def main() -> int:
    """Print the sizes and what is broken; 1 where something is."""
    for what, value, goal in sizes():
        shown = f"{value:,}" if isinstance(value, int) else value
        print(f"{what:55} {shown}" + (f"   (goal {goal})" if goal else ""))
    for place in long_functions():
        print(f"long: {place}")
    for text in broken():
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken() else 0


if __name__ == "__main__":
    sys.exit(main())
