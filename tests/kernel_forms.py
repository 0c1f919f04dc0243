"""Both forms of a module of the kernel, for tests that ask the same of each."""

from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from types import ModuleType

from ledgermq import kernel


def forms_of(name: str) -> list[ModuleType]:
    """The source of a module of the kernel, and what was compiled of it, if that runs here: its
    classes are those of the whole kernel.
    """
    assert name in kernel.MODULES
    source, compiled = kernel.source_of(name), kernel.compiled_of(name)
    forms = [_load(ModuleSpec(name, SourceFileLoader(name, source), origin=source))]
    if compiled is not None and kernel.is_compiled():
        loader = ExtensionFileLoader(name, compiled)
        forms.append(_load(ModuleSpec(name, loader, origin=compiled)))
    return forms


def _load(spec: ModuleSpec) -> ModuleType:
    spec.has_location = True
    module = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module
