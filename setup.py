"""The compiled kernel; all else is in pyproject.toml, where setuptools takes extensions as experiments.

It is loaded by ctypes and holds no Python module. Without a compiler it is left out: the runtime then
computes in numpy.
"""

from setuptools import Extension, setup

KERNEL = Extension(
    "dlrover_nb.core.runtime.kernels._kernel",
    ["dlrover_nb/core/runtime/kernels/kernel.c"],
    extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
    optional=True,
)

setup(ext_modules=[KERNEL])
