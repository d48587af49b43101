"""A study's folder, as far as figures need it."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


class StudyError(Exception):
    """The folder is no study, or its files cannot be read."""


@dataclass
class Point:
    """A row of results.csv."""

    id: str
    strategy: str
    batch: int  # sequences of a step
    seq: int
    status: str
    planned_bytes: int
    peak_bytes: int | None = None  # where it ran, as all that follows
    tokens_per_second: float | None = None
    spread: tuple[float, float] | None = None  # its 20 % and 80 % quantiles
    seconds: float | None = None

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def out_of_memory(self) -> bool:
        return self.status == "out of memory"


@dataclass
class Study:
    folder: Path
    title: str
    cap_bytes: int
    titles: dict[str, str]  # of strategies, in their order
    flags: dict[str, str]
    points: list[Point]
    notes: list[str] = field(default_factory=list)

    def memory(self, point: Point) -> dict[str, Any] | None:
        """Every block of a step, or None where that is not known."""
        return self._of(point, "memory.json", "tigon-memory", _check_memory)

    def times(self, point: Point) -> dict[str, Any] | None:
        """Where a step's time went, or None where that is not known."""
        return self._of(point, "times.json", "tigon-times", _check_times)

    def _of(self, point: Point, name: str, kind: str, check: Callable[[Any], None]) -> dict[str, Any] | None:
        path = self.folder / "points" / point.id / name
        if Path(point.id).name != point.id or not path.is_file():
            return None
        try:
            value: dict[str, Any] = _read_json(path)
            if value["format"] != kind or value["version"] != 1:
                raise ValueError(f"it is no {kind} of version 1")
            check(value)
        except (StudyError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            note = f"{path} is left out: {error!r}"
            if note not in self.notes:
                self.notes.append(note)
            return None
        return value


def _check_memory(value: Any) -> None:
    blocks = value["blocks"]
    columns = [blocks[name] for name in ("birth", "death", "bytes", "class")]
    for birth, death, size, kind in zip(*columns, strict=True):
        if not (birth >= 0 and (death == -1 or death >= birth) and size >= 0 and 0 <= kind < len(value["classes"])):
            raise ValueError("a block makes no sense")
    for phase in value.get("phases", []):
        phase["name"], phase["begin"] + phase["end"]


def _check_times(value: Any) -> None:
    for row in value["rows"]:
        row["name"], float(row["seconds"]), float(row.get("floor_seconds", 0))
    float(value["seconds"])


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StudyError(f"{path} cannot be read: {error}") from error


def _number(text: str | None, kind: Callable[[str], Value]) -> Value | None:
    return kind(text) if text else None


def _point(row: dict[str, str]) -> Point:
    low, high = (_number(row.get(f"tokens_per_second_{q}"), float) for q in ("q20", "q80"))
    return Point(
        id=row["id"],
        strategy=row["strategy"],
        batch=int(row["batch"]) * int(row.get("accumulate") or 1),
        seq=int(row["seq"]),
        status=row["status"],
        planned_bytes=int(row["planned_device_bytes"]),
        peak_bytes=_number(row.get("peak_bytes"), int),
        tokens_per_second=_number(row.get("tokens_per_second"), float),
        spread=None if low is None or high is None else (low, high),
        seconds=_number(row.get("seconds"), float),
    )


def read_study(folder: Path) -> Study:
    """What study.json and results.csv say; StudyError where they are not those of a study."""
    for name in ("study.json", "results.csv"):
        if not (folder / name).is_file():
            raise StudyError(f"{folder} is no study: it has no {name}")
    plan = _read_json(folder / "study.json")
    try:
        if plan["format"] != "tigon-study" or plan["version"] != 1:
            raise StudyError(f"{folder / 'study.json'} is no tigon-study of version 1")
        with open(folder / "results.csv", newline="", encoding="utf-8") as file:
            points = [_point(row) for row in csv.DictReader(file)]
        strategies = {s["name"]: s for s in plan["strategies"]}
        for point in points:
            strategies.setdefault(point.strategy, {})
        return Study(
            folder=folder,
            title=plan.get("title") or plan.get("name") or "A study",
            cap_bytes=int(plan.get("cap_bytes") or 0),
            titles={name: s.get("title") or name for name, s in strategies.items()},
            flags={name: s.get("flags") or "" for name, s in strategies.items()},
            points=points,
        )
    except (LookupError, TypeError, ValueError, AttributeError, csv.Error) as error:
        raise StudyError(f"{folder} is no study that can be read: {error!r}") from error
