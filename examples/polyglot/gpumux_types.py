"""Made of docs/schema by `go test . -run TestSchema -update`."""

from typing import Any, Dict, List, Literal

from typing_extensions import Required, TypedDict

Stage = TypedDict(
    "Stage",
    {
        "task": Required[str],
        "edition": str | None,
        "ladder": List[str] | None,
        "arg": Any,
        "mode": Literal["persistent", "fresh", ""] | None,
        "chunk": int | None,
        "timeout": float | str | None,
        "attempts": int | None,
        "retryOn": List[str] | None,
        "backoff": float | str | None,
        "keep": bool | None,
    },
    total=False,
)

Range = TypedDict(
    "Range",
    {
        "start": int | None,
        "end": int | None,
    },
    total=False,
)

MapInput = TypedDict(
    "MapInput",
    {
        "task": str | None,
        "stages": List[Stage] | None,
        "edition": str | None,
        "items": List[Any] | None,
        "source": str | None,
        "columns": List[str] | None,
        "range": Range | None,
        "arg": Any,
        "argFile": str | None,
        "ladder": List[str] | None,
        "patience": float | str | None,
        "poolTimeout": float | str | None,
        "mapTimeout": float | str | None,
        "mode": Literal["persistent", "fresh", ""] | None,
        "chunk": int | None,
        "window": int | None,
        "timeout": float | str | None,
        "attempts": int | None,
        "retryOn": List[str] | None,
        "backoff": float | str | None,
        "maxFailures": int | str | None,
        "output": str | None,
        "key": str | None,
        "withItem": bool | None,
        "priority": int | None,
        "fairnessKey": str | None,
        "fairnessWeight": float | None,
    },
    total=False,
)

Fault = TypedDict(
    "Fault",
    {
        "kind": Required[Literal["device_oom", "budget", "host_oom", "crash", "timeout", "device_lost", "task_error", "bad_input", "canceled"]],
        "item": str,
        "index": int,
        "op": str,
        "message": Required[str],
        "class": str,
        "task": str,
        "slot": str,
        "device": str,
        "host": str,
        "pid": int,
        "exit": str,
        "budget": int,
        "peak": int,
        "requested": int,
        "total": int,
        "free": int,
        "attempts": int,
        "final": bool,
        "traceback": str,
        "tail": str,
        "hint": str,
        "edition": str,
        "batch": int,
        "alone": bool,
        "blameless": bool,
    },
    total=False,
)

Result = TypedDict(
    "Result",
    {
        "index": Required[int],
        "value": Any,
        "fault": Fault,
        "output": str,
        "files": List[str],
        "key": Any,
        "item": Any,
    },
    total=False,
)

Peaks = TypedDict(
    "Peaks",
    {
        "items": Required[int],
        "p50": Required[int],
        "p99": Required[int],
        "max": Required[int],
        "budget": int,
        "gpus": int,
        "first": Required[int],
        "counts": Required[List[int]],
    },
    total=False,
)

GPUUse = TypedDict(
    "GPUUse",
    {
        "time": Required[float],
        "computing": Required[float],
        "slowed": float,
        "energy": float,
        "cost": float,
        "slots": Required[float],
        "busy": Required[float],
        "items": Required[int],
    },
    total=False,
)

StageProgress = TypedDict(
    "StageProgress",
    {
        "task": Required[str],
        "ladder": Required[List[str]],
        "succeeded": Required[int],
        "failed": Required[int],
        "running": Required[int],
        "waiting": Required[int],
        "inFlight": Required[int],
        "chunks": Required[int],
        "slots": int,
        "itemTime": float,
        "busy": Required[float],
        "peak": Peaks,
        "gpu": GPUUse,
    },
    total=False,
)

Summary = TypedDict(
    "Summary",
    {
        "task": Required[str],
        "items": Required[int],
        "succeeded": Required[int],
        "failed": Required[int],
        "faults": Dict[str, int],
        "output": str,
        "results": List[Result],
        "busy": Required[float],
        "elapsed": Required[float],
        "chunks": Required[int],
        "peak": Peaks,
        "gpu": GPUUse,
        "passedOver": List[str],
        "stages": List[StageProgress],
    },
    total=False,
)

RungBacklog = TypedDict(
    "RungBacklog",
    {
        "rung": Required[str],
        "items": Required[int],
    },
    total=False,
)

Progress = TypedDict(
    "Progress",
    {
        "task": Required[str],
        "phase": Required[Literal["indexing", "running", "merging", "done"]],
        "items": Required[int],
        "succeeded": Required[int],
        "failed": Required[int],
        "faults": Dict[str, int],
        "inFlight": Required[int],
        "window": Required[int],
        "chunk": Required[int],
        "chunks": Required[int],
        "paused": Required[bool],
        "waitingFor": str,
        "started": Required[str],
        "rate": Required[float],
        "backlog": List[RungBacklog],
        "itemTime": float,
        "recent": List[Result],
        "output": str,
        "waiting": int,
        "lost": str,
        "passedOver": List[str],
        "peak": Peaks,
        "gpu": GPUUse,
        "stages": List[StageProgress],
    },
    total=False,
)
