"""Builds the kernel: the loops that each message passes, compiled.

Each module that `ledgermq/kernel.py` names is plain Python with a `.pxd` beside it that gives its
variables C types. The compiled form takes the place of the source at import (`kernel.py` says how
to prevent that). Where there is no C compiler the installation goes on without it.

Everything is compiled anew each time, for what is there may be of other sources, whatever its date.
"""

import importlib.util
import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BUILT = Path("build/kernel")

# By its path: to import it as a part of the package would import the package.
spec = importlib.util.spec_from_file_location("kernel", "ledgermq/kernel.py")
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)


def digest_source(module):
    """Writes a C file whose only content is the digest of what a module is compiled of."""
    name = module.replace(".", "_")
    path = BUILT / "digests" / f"{name}.c"
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = kernel.DIGEST_MARK.decode() + kernel.digest_of(module)
    # Not static, so no compiler or linker takes it for needless.
    path.write_text(f'extern const char {name}_digest[];\nconst char {name}_digest[] = "{mark}";\n')
    return str(path)


EXTENSIONS = cythonize(
    [Extension(module, [f"{module.replace('.', '/')}.py"]) for module in kernel.MODULES],
    build_dir=str(BUILT),
    force=True,
    compiler_directives={
        "language_level": 3,
        # Lists, tuples and bytes are indexed as Python does; what goes through a pointer is for the
        # loops themselves to check, before they read or write.
        "boundscheck": True,
        "wraparound": True,
        "cdivision": True,
        "initializedcheck": False,
        # Types are given in the .pxd files alone: an annotation is for readers and mypy.
        "annotation_typing": False,
    },
    show_all_warnings=False,
)
for extension in EXTENSIONS:
    # The sources run as well; cythonize makes extensions anew, so it is said here.
    extension.optional = True
    extension.sources.append(digest_source(extension.name))

setup(
    ext_modules=EXTENSIONS,
    options={"build_ext": {"force": True, "parallel": os.cpu_count() or 1}},
)
