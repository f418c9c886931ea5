"""The API page has every public name, as its source has it, and no public signature changes by accident."""

from __future__ import annotations

from importlib import import_module

import pytest

from docs.generate_api import API_PAGE, SECTIONS, SIGNATURES, api_page, publics, signatures

NAMES = [name for names in SECTIONS.values() for name in names.split()]


def test_the_page_is_what_the_docstrings_generate() -> None:
    assert API_PAGE.read_text(encoding="utf-8") == api_page(), "run: python docs/generate.py"


def test_lists_and_code_of_a_docstring_are_lists_and_code_on_the_page() -> None:
    page = api_page()
    assert "\n- `late` is false for rows in order.\n- `late` is true for a row " in page
    assert "\n```python\npage = StatusPage(spark)\nprint(page.url)\n```\n" in page
    assert "<br>- `watermark`: milliseconds since 1970-01-01 UTC.<br>Raises:<br>- `UsageError`: " in page


@pytest.mark.parametrize("module", ["watermark_source", "watermark_source.connector", "watermark_source_testing"])
def test_every_public_name_is_on_the_page_once(module: str) -> None:
    here = [name for (_, home), names in SECTIONS.items() if home == module for name in names.split()]
    assert sorted(here) == sorted(import_module(module).__all__)
    assert len(set(NAMES)) == len(NAMES)


def test_a_public_signature_is_the_recorded_one() -> None:
    recorded, found = (text.splitlines() for text in (SIGNATURES.read_text(encoding="utf-8"), signatures()))
    changed = {"removed": sorted(set(recorded) - set(found)), "added": sorted(set(found) - set(recorded))}
    how = "a public signature changed; if users must change code, say so in CHANGELOG.md, and then run: "
    assert recorded == found, f"{how}python docs/generate.py --signatures\n{changed}"


def test_every_public_name_is_documented() -> None:
    named = [public for (_, module), names in SECTIONS.items() for public in publics(module, names)]
    assert [public.name for public in named if not public.own.doc] == []
