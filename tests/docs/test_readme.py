"""The README: short, and what it shows is what there is."""

from tests.pages import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_readme_is_read_in_minutes() -> None:
    assert len(README.splitlines()) <= 120
