"""The compiled kernel, and what names the repository; all else is in pyproject.toml.

setuptools takes extensions in pyproject.toml as experiments, so the kernel stands here.

It is loaded by ctypes and holds no Python module, so that one library serves every Python: neither its file
name nor the wheel's tag names a version (py3-none-linux_x86_64). Without a compiler it is left out, the
runtime computes in numpy, and the wheel is one for any platform (py3-none-any). abi3 was rejected: it is a
promise on Python's C API, which the kernel does not use.
"""

import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

REPOSITORY = (
    "https://example.org/dlrover-nb"  # a placeholder: where the sources are published, set here alone
)

SOURCES = "dlrover_nb/core/runtime/kernels"
KERNEL = Extension(
    "dlrover_nb.core.runtime.kernels._kernel",
    [
        f"{SOURCES}/{name}.c"
        for name in ("kernel", "serve", "ages", "store", "messages", "copying", "layouts")
    ],
    depends=[f"{SOURCES}/{name}.h" for name in ("kernel", "serve", "store")],
    extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread"],
    extra_link_args=["-pthread"],
    optional=True,
)


class BuildKernel(build_ext):
    """Build the library under a name without a Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file of an extension below the build folder."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))


class KernelWheel(bdist_wheel):
    """Tag the wheel by what was built."""

    def run(self) -> None:
        """Build first: whether there is a library decides on the tag."""
        self.run_command("build")
        library = self.get_finalized_command("build_ext").get_ext_fullpath(KERNEL.name)
        self.root_is_pure = not Path(library).exists()
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return Python, ABI and platform: any Python 3, no ABI."""
        *_, platform = super().get_tag()
        return "py3", "none", platform


def readme() -> str:
    """Return README with links and pictures that also work on the page of a package index."""
    text = Path("README.md").read_text(encoding="utf-8")
    pictures = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{REPOSITORY}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/main/", pictures)


setup(
    ext_modules=[KERNEL],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": KernelWheel},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={
        "Source": REPOSITORY,
        "Documentation": f"{REPOSITORY}/tree/main/docs",
        "Changelog": f"{REPOSITORY}/blob/main/docs/changelog.md",
        "Issues": f"{REPOSITORY}/issues",
    },
)
