"""The newest documents as JSON, for programs that want more than metrics."""

from __future__ import annotations

from typing import Any

import msgspec

from mpswatch.latest import View


def as_json(view: View, *, private: bool) -> bytes:
    """Write `/api/v1/latest`: documents with their own keys, and why one is missing.

    Users (`uid`), command lines (`command`, `environment`) and events' details are there only where `private`.
    """
    content = {
        "version": view.version,
        "host": view.host,
        "mpswatch_version": view.mpswatch_version,
        "simulated": view.simulated,
        "started_at": view.started_at,
        "paused": view.paused,
        "poll": msgspec.to_builtins(view.poll),
        "poll_unknown_reason": view.poll_unknown,
        "sweeps": [
            {
                **target._asdict(),
                "outcome": health.outcome,
                "finished_at": health.finished_at,
                "last_success_at": health.last_success_at,
                "document": msgspec.to_builtins(health.document),
                "unknown_reason": "stale" if health.document is None else None,
            }
            for target, health in sorted(view.sweeps.items())
        ],
        "interferences": [
            {
                "daemon": daemon,
                "gpu_uuid": uuid,
                "run_id": health.run_id,
                "finished_at": health.finished_at,
                "document": msgspec.to_builtins(health.document),
                "unknown_reason": "stale" if health.document is None else None,
            }
            for (daemon, uuid), health in sorted(view.interferences.items())
        ],
        "never_swept": [target._asdict() for target in view.to_measure if target not in view.sweeps],
        "refused": [
            {**target._asdict(), "event": msgspec.to_builtins(event)} for target, event in sorted(view.refused.items())
        ],
        "runs": [
            {**run.target._asdict(), "at": run.at, "outcome": run.outcome, "reason": run.reason, "run_id": run.run_id}
            for run in view.runs
        ],
        "events": [msgspec.to_builtins(event) for event in view.events],
    }
    return msgspec.json.encode(content if private else without_users(content)) + b"\n"


_PRIVATE = frozenset(
    {"uid", "server_uid", "command", "environment", "details", "client_facts", "client_runtime"}
    | {"user", "command_line", "executable", "slice", "labels"}  # a user's slice has the uid in its name
)


def without_users(value: Any) -> Any:  # noqa: ANN401  # plain JSON data of any shape
    """Leave out users, command lines and environments, at any depth."""
    match value:
        case dict():
            return {key: without_users(inner) for key, inner in value.items() if key not in _PRIVATE}
        case list() | tuple():
            return [without_users(inner) for inner in value]
        case _:
            return value
