"""What pyproject.toml cannot describe: the wheel has the shipped configs, and a description made from the README."""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Copies ``configs/`` to ``embodichain/configs/``; an editable installation reads them where they are."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if not self.editable_mode:
            for source, target in self._configs():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the paths of all built files."""
        return [*super().get_outputs(include_bytecode), *(target for _, target in self._configs())]

    def get_source_files(self) -> list[str]:
        """Return the paths of all files that a source distribution needs."""
        return [*super().get_source_files(), *(source for source, _ in self._configs())]

    def _configs(self) -> list[tuple[str, str]]:
        """Return the path of each config, and where it is built."""
        sources = sorted(path for kind in ("json", "npz") for path in Path("configs").rglob(f"*.{kind}"))
        return [(str(path), str(Path(self.build_lib, "embodichain", path))) for path in sources]


def description() -> str:
    """Return the README for readers without the repository: no images, of links into it the text alone."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[.*?\n\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


setup(
    cmdclass={"build_py": BuildWithConfigs},
    long_description=description(),
    long_description_content_type="text/markdown",
)
