"""A picture of the status page, with the statuses that its tests have.

::

    python -m docs.images.status_page

renders the page of a query whose partitions are in every status, and has a browser take the picture,
``status_page.png``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from services.browser import usable_browser
from tests.unit.monitor.example_status import CHECKOUT, NOON, checkout, progress_of, view
from watermark_source.monitor.page_html import Page, page_html
from watermark_source.monitor.source_status import Unprocessed
from watermark_source.monitor.three_clocks import diagnose, query_clocks

PICTURE = Path(__file__).with_suffix(".png")
WIDTH, HEIGHT = 1_000, 1_150


def shown() -> Page:
    """Return the page that the picture has."""
    since = Unprocessed(NOON - 150_000, "orders-0")
    status = checkout(without_holder=NOON + 3_000, future_rows=0, unread=since, unprocessed=since, newest=NOON + 4_000)
    clocks = query_clocks(progress_of(status), (status,), NOON + 5_000)
    query = replace(CHECKOUT.queries[0], open=view(status).open, clocks=clocks, why=diagnose(clocks))
    return replace(CHECKOUT, queries=(query,))


def main() -> None:
    """Take the picture."""
    program, _ = usable_browser()
    with program.started() as browser:
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.set_content(page_html(shown(), 0))
        tab.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
