"""The page on the transport says what the tables in the code say."""

import re
from pathlib import Path

from latchguard.integrations.door import UNGUARDED
from latchguard.integrations.endpoints import ENDPOINTS
from latchguard.integrations.httpx import MAX_BODY_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "transport.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[tuple[str, ...]]:
    return re.findall(r"^\| `(.+?)` \| (.+?) \|$", section(title), re.MULTILINE)


def test_page_lists_each_class_that_leaves_unguarded() -> None:
    """No class leaves without a row, and no row is left over."""
    assert rows("What leaves unguarded") == list(UNGUARDED.items())


def test_page_lists_each_endpoint() -> None:
    """Each endpoint has its row, in the order of the table, with its wire."""
    listed = rows("What it reads")
    assert [suffix for suffix, _ in listed] == [endpoint.suffix for endpoint in ENDPOINTS]
    for (_, wire), endpoint in zip(listed, ENDPOINTS, strict=True):
        expected = "none" if not endpoint.supported else "told" if endpoint.wire is None else str(endpoint.wire)
        assert re.split("[,: ]", wire)[0] == expected


def test_page_names_the_limit() -> None:
    """The default limit on the page is the one in the code."""
    assert f"`max_body_bytes` | {MAX_BODY_BYTES >> 20} MiB" in PAGE
