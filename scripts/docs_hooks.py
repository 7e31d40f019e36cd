"""Hooks of mkdocs: links from the pages to files of the repository outside ``docs``.

On the site these links lead to the repository if mkdocs.yml has its address (``repo_url``), and become plain text
otherwise.
"""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, config: Any, **kwargs: Any) -> str:
    """Return a page's text with the links changed."""
    address = config.get("repo_url")

    def change(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        return f"[{text}]({address.rstrip('/')}/blob/main/{path}{anchor})" if address else text

    return _LINK.sub(change, markdown)
