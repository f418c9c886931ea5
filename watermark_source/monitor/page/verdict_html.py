"""The verdict on a query, before its picture, as HTML. Pure."""

from __future__ import annotations

from watermark_source.durations import unbroken
from watermark_source.monitor.page.markup import Markup, joined, tag, with_code
from watermark_source.monitor.verdict import Verdict
from watermark_source.status_model.hold_causes import Clause


def verdict_html(of: Verdict, *more: Markup) -> Markup:
    """Return a verdict, with further paragraphs."""
    facts = (
        tag("div", tag("dt", fact.title), tag("dd", tag("b", unbroken(fact.value)), with_code(fact.about)))
        for fact in of.facts
    )
    state = tag("p", tag("span", of.state.shape, aria_hidden="true"), f" {of.word}", class_="state")
    lead = tag("p", clause(of.lead), class_="lead")
    error = tag("p", of.error, class_="error") if of.error else ""
    listed = tag("dl", *facts, class_="facts") if of.facts else ""
    about = (tag("p", with_code(each), class_="more") for each in of.more)
    return tag("div", state, lead, error, listed, *about, *more, class_=f"verdict {of.state.kind}")


def clause(of: Clause) -> Markup:
    """Return a clause with the name in it set off."""
    return joined(unbroken(of.before), tag("b", of.who) if of.who else "", unbroken(of.after))
