"""PURE: alignment group arithmetic, limits, who holds whom back. No I/O, no clock."""

from watermark_source.alignment.group import (
    Group,
    GroupMember,
    GroupView,
    MemberStatus,
    change,
    join,
    leave,
    limit,
    report,
    report_all,
    view,
)

__all__ = [
    "Group",
    "GroupMember",
    "GroupView",
    "MemberStatus",
    "change",
    "join",
    "leave",
    "limit",
    "report",
    "report_all",
    "view",
]
