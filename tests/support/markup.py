"""What an HTML page is made of."""

from __future__ import annotations

import html.parser


class Tags(html.parser.HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
