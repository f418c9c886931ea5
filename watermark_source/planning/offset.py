"""The offset codec: a source's state as canonical JSON, versioned, equal text for equal state.

Layout of version 1, keys sorted, integers only (but in "own"), absent keys for absent values::

    {"announced": {"at": 42, "log": "Yk2…", "name": "orders.watermarks", "writers": ["sessions"],
      "former": {"sessions": ["5b1d…"]}},  the watermark was announced: from where, and of which log, announcements are
                                        read again; who has announced, and queries that these superseded; with
                                        "left_out": true, others that had not ended are not waited for
     "cap": 1700000600000,              event times later than this were not observed
     "catch_up": {"ends": {"users": {"0": 1200}}, "again": true},  ends of logs that are still to be reached: of those
                                        found at the start, or, again, of those found when these were reached
     "complete": ["shop.users"],        snapshots that were read to their end; there if the source takes any
     "done": "5b1d…:1-7",               all changes before the positions, in terms of every replica of the system
     "epochs": {"orders": {"0": [3, 4200]}},  the epoch of the last row before a position, and where its rows begin
     "ended": true,                     no more rows are read: the watermark is the end of time
     "forgotten": {"shop.users": 1},    logs whose snapshot was given up, and how often
     "held": 3,                         batches of runs with an end that read nothing because of the alignment group
     "ids": {"orders": "Yk2…"},         the logs that the positions are of
     "learned": {"bound": 640, "earlier": [0, 98304, 9, 71], "behind": {"orders": {"0": 71001}}},
                                        of disorder: the bound in force; rows by how far they are behind, as pairs of
                                        bucket and rows, ``recent`` and ``earlier``; how far a split's watermark is
                                        behind its highest event time, where that is not the bound and one
     "limit": 1700000010000,            alignment limit of the batch
     "member": "5b1d0c2e9f31",          its name in its alignment group
     "name": "orders",                  the source's own name
     "own": {"class": "shop.times:Hourly", "states": {"orders": {"0": {"hour": 7}}}},  the strategy that
                                        remembers splits, the user's class or one of ours, and what: any JSON
     "pt": true,                        processing-time watermark
     "run": 2,                          how many processes have planned so far
     "shift": 7000,                     what was added to the replica's own positions
     "since": 1700000003000,            the earliest moment of all splits
     "snapshot": {"shop.orders": [[100], [200], null]},  where chunks end: of snapshots, the last before, and those
                                        that were planned last
     "source": "my-format",             format name
     "splits": {"orders": {"0": [position, planned, watermark, status, since, step, returning]}},
     "system": "5b1d…",                 the replica that the positions belong to
     "time": "at",                      what event time is, where it is not the default
     "v": 1,
     "wm": 1700000000000}               combined watermark

``planned`` is the number of positions of the last range, so ``position - planned`` is where it began. A split's
``watermark`` is written as its distance from "wm" (from 0 without one), its ``since`` as its distance from the
source's: that keeps a split at about 50 bytes. ``returning`` is 1, 2 or null. Trailing fields with the usual value (not
returning, no step, no moment, status active, no watermark) are left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from watermark_source.errors import OffsetError, shortened
from watermark_source.planning.announced import AnnouncedFrom
from watermark_source.planning.canonical_json import canonical
from watermark_source.planning.disorder import BUCKETS, Counts, Learned
from watermark_source.planning.split import Split
from watermark_source.planning.state import (
    Bound,
    CatchUp,
    Epoch,
    GroupState,
    Origin,
    Returning,
    SnapshotState,
    SourceState,
    SplitState,
    SplitStatus,
)
from watermark_source.planning.watermark import MAX, MIN, Millis

# What was learned of disorder, as it stands in an offset: one histogram a source, and a few bytes of some splits.


KEY = "learned"
_KEYS = {"bound", "recent", "earlier", "behind"}


def encode_learned(learned: Learned | None, splits: Mapping[Split, SplitState]) -> dict[str, Any] | None:
    """Return the value of ``KEY``.

    ``behind`` names the splits whose watermark is not behind their highest event time by the bound: one that became
    larger moves none back.
    """
    if learned is None:
        return None
    behind = {
        split: None if state.highest is None else state.highest - (state.watermark or 0)
        for split, state in splits.items()
        if state.highest != _usual(state, learned)
    }
    found: dict[str, Any] = {
        "behind": _by_log(behind),
        "bound": learned.bound,
        "earlier": _flat(learned.earlier),
        "recent": _flat(learned.recent),
    }
    return {key: value for key, value in found.items() if key == "bound" or value}


def decode_learned(
    value: object, splits: Mapping[Split, SplitState]
) -> tuple[Learned | None, dict[Split, Millis | None]]:
    """Return what was learned, and the highest event time of each split.

    Raises:
        ValueError: it is nothing that ``encode_learned`` writes.
        OffsetError: so is what it has of splits.
    """
    if value is None:
        return None, {}
    if not isinstance(value, Mapping) or not {"bound"} <= value.keys() <= _KEYS:
        raise ValueError
    learned = Learned(
        _number(value["bound"], 0, MAX), _counts(value.get("recent", [])), _counts(value.get("earlier", []))
    )  # fmt: skip
    highest = {split: _usual(state, learned) for split, state in splits.items()}
    for split, at in _of_known(value.get("behind", {}), splits, KEY):
        base = splits[split].watermark or 0
        highest[split] = None if at is None else Millis(base + _number(at, MIN - base, MAX - base))
    return learned, highest


def _usual(state: SplitState, learned: Learned) -> Millis | None:
    """Return the highest event time that goes with the watermark and the bound."""
    highest = None if state.watermark is None else state.watermark + learned.bound + 1
    return None if highest is None or highest > MAX else Millis(highest)


def _by_log(values: Mapping[Split, Any]) -> dict[str, dict[str, Any]]:
    """Return values by log and number, as in Spark's Kafka offsets, with sorted keys."""
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for (log, number), value in values.items():
        found[log][str(number)] = value
    return {log: {number: numbers[number] for number in sorted(numbers)} for log, numbers in sorted(found.items())}


def _flat(counts: Counts) -> list[int]:
    return [number for pair in counts for number in pair]


def _counts(numbers: object) -> Counts:
    if not isinstance(numbers, list):
        raise ValueError  # noqa: TRY004 - as for all that is broken
    buckets = tuple(_number(bucket, 0, BUCKETS - 1) for bucket in numbers[::2])
    if any(a >= b for a, b in pairwise(buckets)):
        raise ValueError
    return tuple(zip(buckets, (_number(rows, 1, MAX) for rows in numbers[1::2]), strict=True))


def _number(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


VERSION = 1
_REQUIRED = frozenset({"name", "run", "source", "splits", "v"})
_KNOWN = _REQUIRED | {
    "announced", "cap", "catch_up", "complete", "done", "ended", "epochs", "forgotten", "held", "ids", KEY, "limit",
    "member", "own", "pt", "shift", "since", "snapshot", "system", "time", "wm",
}  # fmt: skip
OF_SNAPSHOTS = frozenset({"complete", "forgotten", "snapshot"})
OF_REPLICAS = frozenset({"done", "shift", "system"})
OF_LINEAGE = frozenset({"epochs", "ids"})
_ACTIVE = SplitStatus.ACTIVE.value
_ABSENT: tuple[Any, ...] = (None, _ACTIVE, None, None, None)
_FIELDS = 2 + len(_ABSENT)
_STATUS = {status.value: status for status in SplitStatus}
_MAX_NUMBER = 2**31 - 1


def own_offset(found: object) -> Mapping[str, Any] | None:
    """Return an offset of this project's sources, given parsed or as JSON; ``None`` for anything else."""
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, Mapping) and found.keys() >= _REQUIRED else None


@dataclass(frozen=True, slots=True)
class OffsetCodec:
    """Reads and writes the offsets of one source."""

    source: str
    """Format name."""
    name: str
    """The user's name for the source."""
    never: frozenset[str] = frozenset()
    """Keys that no offset of the source has."""

    def encode(self, state: SourceState) -> dict[str, Any]:
        """Return the offset; its JSON text is equal exactly when the states are equal."""
        since = min((t.since for t in state.splits.values() if t.since is not None), default=None)
        splits = {s: _encode_split(t, state.watermark or 0, since or 0) for s, t in state.splits.items()}
        origin, snapshots, group = state.origin or Origin(None), state.snapshots, state.group
        ordered = sorted(snapshots.frontiers.items())
        offset: dict[str, Any] = {
            "announced": None if state.announced is None else _encode_announced(state.announced),
            "cap": state.future_cap,
            "catch_up": None if state.catch_up is None else _encode_catch_up(state.catch_up),
            "complete": None if snapshots.complete is None else sorted(snapshots.complete),
            "done": origin.done,
            "ended": True if state.ended else None,
            "epochs": _by_log({s: list(t.epoch) for s, t in state.splits.items() if t.epoch is not None}) or None,
            "forgotten": dict(sorted(snapshots.forgotten.items())) or None,
            "held": group.held or None,
            "ids": dict(sorted(state.ids.items())) or None,
            KEY: encode_learned(state.learned, state.splits),
            "limit": group.limit,
            "member": group.member,
            "name": self.name,
            "own": None if state.kept_by is None else _encode_own(state.kept_by, state.splits),
            "pt": True if state.use_processing_time else None,
            "run": state.run,
            "shift": origin.shift or None,
            "since": since,
            "snapshot": {log: [None if b is None else list(b) for b in bounds] for log, bounds in ordered} or None,
            "source": self.source,
            "splits": _by_log(splits),
            "system": origin.copy,
            "time": state.event_time,
            "v": VERSION,
            "wm": state.watermark,
        }
        return {key: value for key, value in offset.items() if value is not None}

    def decode(self, offset: object) -> SourceState:
        """Return the state an offset holds.

        Raises:
            OffsetError: the offset is not of this format, version, source or name.
        """
        if not isinstance(offset, Mapping):
            raise _broken(f"it is {_shown(offset)}", "an object")
        self._check_header(offset)
        for key in ("ended", "pt"):
            if offset.get(key, True) is not True:
                raise _broken(f'"{key}" is {_shown(offset[key])}', "true or no such key")
        watermark = _millis(offset, "wm")
        splits = _decode_splits(offset["splits"], watermark or 0, _millis(offset, "since") or 0)
        try:
            learned, highest = decode_learned(offset.get(KEY), splits)
        except ValueError:
            raise _broken(f'"{KEY}" is {_shown(offset[KEY])}', "what was learned of disorder") from None
        if highest:
            splits = {s: replace(t, highest=highest[s]) for s, t in splits.items()}
        splits |= _decode_epochs(offset.get("epochs", {}), splits)
        kept_by, kept = _decode_own(offset["own"], splits) if "own" in offset else (None, {})
        return SourceState(
            splits={**splits, **{s: replace(splits[s], kept=text) for s, text in kept.items()}},
            ids=_decode_ids(offset.get("ids", {}), splits),
            watermark=watermark,
            use_processing_time="pt" in offset,
            future_cap=_millis(offset, "cap"),
            snapshots=SnapshotState(
                frontiers=_decode_frontiers(offset.get("snapshot", {}), offset["splits"]),
                complete=_decode_complete(offset),
                forgotten=_decode_forgotten(offset.get("forgotten", {})),
            ),
            group=GroupState(
                member=_text(offset.get("member"), '"member" is'),
                limit=_millis(offset, "limit"),
                held=_integer(offset.get("held", 0), '"held"', minimum=0),
            ),
            origin=_decode_origin(offset),
            ended="ended" in offset,
            learned=learned,
            announced=_decode_announced(offset["announced"]) if "announced" in offset else None,
            kept_by=kept_by,
            catch_up=_decode_catch_up(offset["catch_up"]) if "catch_up" in offset else None,
            event_time=_text(offset.get("time"), '"time" is'),
            run=_integer(offset["run"], '"run"', minimum=0),
        )

    def _check_header(self, offset: Mapping[str, Any]) -> None:
        if "v" not in offset and not offset.keys() & _REQUIRED:
            raise OffsetError(
                f"the checkpoint belongs to another source: its offset is {_shown(offset)}, which {self.source} never "
                "writes. Give the query the checkpointLocation that it had, or start with a new one."
            )
        version = offset.get("v")
        if type(version) is not int or version < 1:
            raise _broken(f'"v" is {_shown(version)}', str(VERSION))
        if version > VERSION:
            raise OffsetError(
                f"the checkpoint was written by a newer version of this library: offset version {_shown(version)}, "
                f"this one reads up to {VERSION}. Upgrade the library, or start with a new checkpoint location."
            )
        missing, unknown = _REQUIRED - offset.keys(), offset.keys() - (_KNOWN - self.never)
        if missing or unknown:
            seen = f"missing {sorted(missing)}" if missing else f"unknown {_shown(sorted(map(str, unknown)))}"
            raise _broken(f"its keys are wrong: {seen}", f"{sorted(_KNOWN - self.never)}")
        for key, own in (("source", self.source), ("name", self.name)):
            if offset[key] != own:
                raise OffsetError(
                    f"the checkpoint belongs to another source: its {key} is {_shown(offset[key])}, this query's is "
                    f"{own!r}. Give the source its old sourceName, or start with a new checkpoint location."
                )


def _encode_split(state: SplitState, watermark: int, since: int) -> list[Any]:
    fields: list[Any] = [
        state.position,
        state.position - state.observed,
        None if state.watermark is None else state.watermark - watermark,
        # To ask an enum for its value takes longer than all the rest.
        _ACTIVE if state.status is SplitStatus.ACTIVE else state.status.value,
        None if state.since is None else state.since - since,
    ]
    if state.step is not None or state.returning is not None:
        fields += [state.step, None if state.returning is None else state.returning.value]
    while len(fields) > 2 and fields[-1] == _ABSENT[len(fields) - 3]:
        del fields[-1]
    return fields


def _by_number(logs: object, what: str) -> Iterator[tuple[Split, Any]]:
    """Yield what stands by log and number, as ``_by_log`` writes it."""
    if not isinstance(logs, Mapping):
        raise _broken(f'"{what}" is {_shown(logs)}', "an object")
    for log, numbers in logs.items():
        if not isinstance(log, str) or not isinstance(numbers, Mapping):
            raise _broken(f'the splits of {_shown(log)} are {_shown(numbers)} in "{what}"', "an object")
        for number, found in numbers.items():
            yield Split(log, _decode_number(log, number)), found


def _of_known(logs: object, splits: Mapping[Split, SplitState], what: str) -> Iterator[tuple[Split, Any]]:
    """Yield what stands by log and number, of splits that there are."""
    for split, found in _by_number(logs, what):
        if split not in splits:
            raise _broken(f'"{what}" has {split}', "only what is in splits")
        yield split, found


def _decode_splits(splits: object, watermark: int, since: int) -> dict[Split, SplitState]:
    found = _by_number(splits, "splits")
    return dict(sorted((split, _decode_split(split, fields, watermark, since)) for split, fields in found))


def _decode_epochs(logs: object, splits: Mapping[Split, SplitState]) -> dict[Split, SplitState]:
    """Return the splits whose last row's epoch is known, with it."""
    found: dict[Split, SplitState] = {}
    for split, of in _of_known(logs, splits, "epochs"):
        try:
            epoch, start = of
            last = splits[split].position - 1
            found[split] = replace(splits[split], epoch=Epoch(_number(epoch, 0, MAX), _number(start, 0, last)))
        except (TypeError, ValueError):
            raise _broken(f'"epochs" is {_shown(logs)}', "an epoch and a position before that of a split") from None
    return found


def _decode_ids(ids: object, splits: Mapping[Split, SplitState]) -> dict[str, str]:
    logs = {split.log for split in splits}
    if not isinstance(ids, Mapping) or not all(log in logs and isinstance(ids[log], str) and ids[log] for log in ids):
        raise _broken(f'"ids" is {_shown(ids)}', "an id for some logs")
    return dict(sorted(ids.items()))


def _encode_own(kept_by: str, splits: Mapping[Split, SplitState]) -> dict[str, Any]:
    states = _by_log({split: json.loads(at.kept) for split, at in splits.items() if at.kept is not None})
    return {"class": kept_by, **({"states": states} if states else {})}


def _decode_own(value: object, splits: Mapping[Split, SplitState]) -> tuple[str, dict[Split, str]]:
    """Return the strategy that keeps states of splits, and these."""
    if not isinstance(value, Mapping) or not {"class"} <= value.keys() <= {"class", "states"}:
        raise _broken(f'"own" is {_shown(value)}', "an object with class and states")
    name, states = value["class"], value.get("states", {})
    if not isinstance(name, str) or not name:
        raise _broken(f'"own" has a class {_shown(name)}', "a name")
    try:
        return name, {split: canonical(state) for split, state in _of_known(states, splits, "own")}
    except (TypeError, ValueError, RecursionError):
        raise _broken(f'"own" has states {_shown(states)}', "JSON for each of some splits") from None


def _encode_announced(of: AnnouncedFrom) -> dict[str, Any]:
    log = {} if of.log is None else {"log": of.log}
    former = {"former": {name: list(queries) for name, queries in of.former.items()}} if of.former else {}
    left_out = {"left_out": True} if of.left_out else {}
    name = {} if of.name is None else {"name": of.name}
    return {"at": of.position, **left_out, **log, **name, **former, "writers": list(of.writers)}


def _decode_announced(value: object) -> AnnouncedFrom:
    known = {"at", "former", "left_out", "log", "name", "writers"}
    if not isinstance(value, Mapping) or not {"at", "writers"} <= value.keys() <= known:
        raise _broken(f'"announced" is {_shown(value)}', "an object with at, log, name, writers, former and left_out")
    if value.get("left_out", True) is not True:
        raise _broken(f'"announced" has left_out {_shown(value["left_out"])}', "true or no such key")
    log, name = (_text(value.get(key), f'"announced" has a {key}') for key in ("log", "name"))
    writers, former = value["writers"], value.get("former", {})
    if not _are_names(writers):
        raise _broken(f'"announced" has writers {_shown(writers)}', "a list of names")
    if not isinstance(former, Mapping) or not all(map(_are_names, former.values())):
        raise _broken(f'"announced" has former {_shown(former)}', "lists of queries by writer")
    earlier = {writer: tuple(queries) for writer, queries in former.items()}
    at = _integer(value["at"], '"announced" at', minimum=0)
    return AnnouncedFrom(at, log, tuple(writers), earlier, "left_out" in value, name)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def _encode_catch_up(of: CatchUp) -> dict[str, Any]:
    ends = {"ends": _by_log(of.ends)} if of.ends else {}
    return {**ends, **({"again": True} if of.again else {})}


def _decode_catch_up(value: object) -> CatchUp:
    if not isinstance(value, Mapping) or not value.keys() <= {"again", "ends"} or value.get("again", True) is not True:
        raise _broken(f'"catch_up" is {_shown(value)}', "an object with ends and again")
    found = _by_number(value.get("ends", {}), "catch_up")
    ends = {split: _integer(end, f'end of {split} in "catch_up"', minimum=0) for split, end in found}
    return CatchUp(dict(sorted(ends.items())), again="again" in value)


def _decode_frontiers(frontiers: object, splits: object) -> dict[str, tuple[Bound, ...]]:
    if not isinstance(frontiers, Mapping):
        raise _broken(f'"snapshot" is {_shown(frontiers)}', "an object")
    decoded: dict[str, tuple[Bound, ...]] = {}
    for log, bounds in sorted(frontiers.items()):
        if not isinstance(splits, Mapping) or "0" not in splits.get(log, {}):
            raise _broken(f"there is a snapshot of {_shown(log)}", "one of a log that has a split 0")
        if not isinstance(bounds, list) or None in bounds[:-1]:
            raise _broken(f"the snapshot of {_shown(log)} is {_shown(bounds)}", "a list of keys")
        decoded[log] = tuple(_decode_bound(log, bound) for bound in bounds)
    return decoded


def _decode_complete(offset: Mapping[str, Any]) -> frozenset[str] | None:
    frontiers = offset.get("snapshot", {})
    if "complete" not in offset:
        # Earlier offsets leave it out where it is empty.
        return frozenset() if frontiers else None
    logs = offset["complete"]
    if not isinstance(logs, list) or not all(isinstance(log, str) and log not in frontiers for log in logs):
        raise _broken(f'"complete" is {_shown(logs)}', "a list of logs whose snapshot is not under way")
    return frozenset(logs)


def _decode_forgotten(logs: object) -> dict[str, int]:
    if not isinstance(logs, Mapping) or not all(isinstance(log, str) for log in logs):
        raise _broken(f'"forgotten" is {_shown(logs)}', "an object")
    return {log: _integer(logs[log], f'"forgotten" of {_shown(log)}', minimum=1) for log in sorted(logs)}


def _decode_origin(offset: Mapping[str, Any]) -> Origin | None:
    if not offset.keys() & {"done", "shift", "system"}:
        return None
    if not isinstance(done := offset.get("done", ""), str):
        raise _broken(f'"done" is {_shown(done)}', "a text or no such key")
    shift = _integer(offset.get("shift", 0), '"shift"', minimum=0)
    origin = Origin(_text(offset.get("system"), '"system" is'), shift, offset.get("done"))
    # An empty one is not written.
    return None if origin == Origin(None) else origin


def _text(value: object, what: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise _broken(f"{what} {_shown(value)}", "a text or no such key")
    return value


def _decode_bound(log: str, bound: object) -> Bound:
    if bound is None:
        return None
    if isinstance(bound, list) and bound and all(type(value) in (int, str) for value in bound):
        return tuple(bound)
    raise _broken(f"the snapshot of {_shown(log)} has a key {_shown(bound)}", "whole numbers and texts")


def _decode_number(log: str, text: object) -> int:
    # Only the one way we write it: "7" and "07" would be the same split twice.
    if isinstance(text, str) and text.isdecimal() and len(text) <= len(str(_MAX_NUMBER)):
        number = int(text)
        if number <= _MAX_NUMBER and str(number) == text:
            return number
    raise _broken(f"split number {_shown(text)} of {_shown(log)}", f"a whole number up to {_MAX_NUMBER}")


def _decode_split(split: Split, fields: object, wm_base: int, since_base: int) -> SplitState:
    if not isinstance(fields, list) or not 2 <= len(fields) <= _FIELDS:
        raise _broken(f"split {split} is {_shown(fields)}", f"a list of 2 to {_FIELDS} fields")
    position, planned, watermark, letter, since, step, returning = [*fields, *_ABSENT[len(fields) - 2 :]]
    if not isinstance(letter, str) or letter not in _STATUS:
        raise _broken(f"split {split} has status {_shown(letter)}", f"one of {sorted(_STATUS)}")
    if returning is not None:
        _integer(returning, f"whether {split} is returning", minimum=1, maximum=2)
    position = _integer(position, f"position of {split}", minimum=0)
    return SplitState(
        position=position,
        observed=position - _integer(planned, f"planned size of {split}", minimum=0, maximum=position),
        watermark=None if watermark is None else _moment(watermark, wm_base, f"watermark of {split}"),
        status=_STATUS[letter],
        since=None if since is None else _moment(since, since_base, f"moment of {split}"),
        step=None if step is None else _integer(step, f"step of {split}", minimum=1),
        returning=None if returning is None else Returning(returning),
    )


def _moment(distance: object, base: int, what: str) -> Millis:
    return Millis(base + _integer(distance, what, minimum=MIN - base, maximum=MAX - base))


def _millis(offset: Mapping[str, Any], key: str) -> Millis | None:
    return Millis(_integer(offset[key], f'"{key}"')) if key in offset else None


def _integer(value: object, what: str, *, minimum: int = MIN, maximum: int = MAX) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise _broken(f"{what} is {_shown(value)}", f"a whole number from {minimum} to {maximum}")
    return value


def _shown(value: object) -> str:
    try:
        return shortened(repr(value))
    except RecursionError:
        return "a deep nest"


def _broken(seen: str, expected: str) -> OffsetError:
    return OffsetError(
        # The text is shortened as a whole: it may hold the name of a log, of any length.
        f"the checkpoint's offset cannot be read: {shortened(seen)}, expected {expected}. "
        "Restore the checkpoint, or start with a new checkpoint location."
    )
