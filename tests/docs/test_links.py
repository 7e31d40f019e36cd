"""Links between pages and files lead somewhere: on the site, and where the repository is browsed."""

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]


def text_of(page: Path) -> str:
    """A page without its code, where `#` begins no heading and brackets are no link."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The anchors that both mkdocs and GitHub give a heading; the two differ where punctuation stands alone."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip()
        ascii_words = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode()
        site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_words).strip().lower())
        if site == re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-"):
            found.add(site)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", text_of(page))
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    wrong = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"https?:", link):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            wrong.append(link)
    assert wrong == []
