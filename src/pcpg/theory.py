"""`pcpg.theory` is an alias of the package `pcpg_theory`, whose modules are loaded once, under their own names."""

import importlib
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `pcpg.theory.x` where `pcpg_theory.x` is."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.replace(__name__, "pcpg_theory", 1))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # the module has run under its own name: keep its own spec


sys.meta_path.insert(0, _Alias())
sys.modules[__name__] = importlib.import_module("pcpg_theory")
