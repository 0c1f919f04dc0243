"""Builds the kernel: the loops that each message passes, compiled.

Each module that `ledgermq/kernel.py` names is plain Python with a `.pxd` beside it that gives its
variables C types. The compiled form takes the place of the source at import (`kernel.py` says how
to prevent that). Where there is no C compiler the installation goes on without it.

Everything is compiled anew each time, for what is there may be of other sources, whatever its date.

In the environment:

    LEDGERMQ_PURE=1   nothing is compiled; a wheel is one for every machine
    LEDGERMQ_ABI3=1   compiled for Python's stable interface: one wheel for 3.11 and all later
    CFLAGS            the compiler's options, instead of ours
"""

import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILT = Path("build/kernel")
# The oldest Python, as its headers and as a wheel's name write it.
STABLE_INTERFACE = "0x030B0000"
STABLE_TAG = "cp311"
# Half the compiler's time, at the same speed of all loops but one, whose copies only -O3 turns into
# the machine's own. Nobody debugs generated C, nor reads its warnings.
OPTIONS = ["-O2", "-g0", "-w"]
MOST_OPTIMIZED = {"ledgermq.commitlog.run_loops": ["-O3", "-g0", "-w"]}

# By its path: to import it as a part of the package would import the package.
spec = importlib.util.spec_from_file_location("kernel", "ledgermq/kernel.py")
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)


def is_set(name):
    """Tells whether a switch of the environment is on."""
    return os.environ.get(name, "") not in ("", "0")


IS_STABLE = is_set("LEDGERMQ_ABI3")


def can_compile():
    """Tells whether a C compiler and Python's headers are here.

    It takes a moment. To turn all sources into C, which nothing compiles then, takes half a minute.
    """
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC")
    if not compiler:
        # No POSIX: setuptools looks for the compiler in its own ways.
        return True
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        words = [*shlex.split(compiler), "-c", source.name, "-o", "probe.o"]
        words += [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
        try:
            return subprocess.run(words, cwd=folder, capture_output=True).returncode == 0
        except OSError:
            return False


def digest_source(module):
    """Writes a C file whose only content is the digest of what a module is compiled of."""
    name = module.replace(".", "_")
    path = BUILT / "digests" / f"{name}.c"
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = kernel.DIGEST_MARK.decode() + kernel.digest_of(module)
    # Not static, so no compiler or linker takes it for needless.
    path.write_text(f'extern const char {name}_digest[];\nconst char {name}_digest[] = "{mark}";\n')
    return str(path)


def extensions():
    """Returns the modules of the kernel, as C."""
    # Where nothing is compiled it need not be installed.
    from Cython.Build import cythonize  # noqa: PLC0415

    found = cythonize(
        [Extension(module, [f"{module.replace('.', '/')}.py"]) for module in kernel.MODULES],
        build_dir=str(BUILT),
        force=True,
        quiet=True,
        compiler_directives={
            "language_level": 3,
            # Lists, tuples and bytes are indexed as Python does; what goes through a pointer is for
            # the loops themselves to check, before they read or write.
            "boundscheck": True,
            "wraparound": True,
            "cdivision": True,
            "initializedcheck": False,
            # Types are given in the .pxd files alone: an annotation is for readers and mypy.
            "annotation_typing": False,
        },
        show_all_warnings=False,
    )
    for extension in found:
        # The sources run as well; cythonize makes extensions anew, so it is said here.
        extension.optional = True
        extension.sources.append(digest_source(extension.name))
        if "CFLAGS" not in os.environ:
            extension.extra_compile_args = MOST_OPTIMIZED.get(extension.name, OPTIONS)
        if IS_STABLE:
            extension.define_macros = [("Py_LIMITED_API", STABLE_INTERFACE)]
            extension.py_limited_api = True
    return found


class BuildKernel(build_ext):
    """Compiles side by side, and tells how far it is: `packaging/set_up.py` shows it."""

    def build_extension(self, extension):
        super().build_extension(extension)
        if is_set("LEDGERMQ_PROGRESS"):
            sys.stdout.write(f"compiled {extension.name}\n")
            sys.stdout.flush()


options = {"build_ext": {"force": True, "parallel": os.cpu_count() or 1}}
if IS_STABLE:
    options["bdist_wheel"] = {"py_limited_api": STABLE_TAG}

if is_set("LEDGERMQ_PURE"):
    setup()
elif not can_compile():
    sys.stdout.write("nothing is compiled: no C compiler that works, or no headers of Python\n")
    setup()
else:
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernel}, options=options)
