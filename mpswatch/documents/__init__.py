"""The vocabulary: what was seen and measured, as immutable documents.

Every room speaks in these types and imports them from here; nothing here does I/O or reads a clock. What is told
to the rest of mpswatch, by `record(fact)`, is a `Fact`.

One rule governs every number (docs/documents.md): it is what was measured, or it is absent with a reason.
A quantity that was looked up as a whole travels in an `Envelope`; a row of numbers (a cell, a tenant, a
server) is one envelope: bare numbers, the row's state, and a reason for each number that is missing.
"""

from typing import TypeAlias

from mpswatch.documents.cell import CapEnforcement, CapVerdict, Cell, CellTimings, Figure, Pieces, Repeat, SmExpectation
from mpswatch.documents.encoding import DocumentError, from_json, json_schema, to_json
from mpswatch.documents.envelope import SCHEMA_VERSION, Document, Envelope, State
from mpswatch.documents.event import Event, EventKind
from mpswatch.documents.gpu import Conditions, ConditionsDuring, Gpu, GpuLook, GpuProcess, MigDevice
from mpswatch.documents.history import QUANTITIES, CapStanding, HistoryLook, PastRun, Quantity, Standing
from mpswatch.documents.interference import InterferenceCell, InterferenceDocument, InterferenceProtocol, Rate, WorkKind
from mpswatch.documents.mps import (
    WORKING_STATES,
    Context,
    DaemonLook,
    MpsFacts,
    ServerLook,
    Waiting,
    WaitingClient,
)
from mpswatch.documents.poll import PollSnapshot, SourceLook, SystemMemory
from mpswatch.documents.reasons import Reason
from mpswatch.documents.sweep import Protocol, SweepDocument
from mpswatch.documents.tenants import (
    ContainerRuntime,
    Disagreement,
    ExpectationLook,
    ReferenceTenant,
    Tenant,
    TenantIdentity,
    TenantKind,
)

Fact: TypeAlias = PollSnapshot | SweepDocument | InterferenceDocument | Event | HistoryLook

__all__ = [
    "QUANTITIES",
    "SCHEMA_VERSION",
    "WORKING_STATES",
    "CapEnforcement",
    "CapStanding",
    "CapVerdict",
    "Cell",
    "CellTimings",
    "Conditions",
    "ConditionsDuring",
    "ContainerRuntime",
    "Context",
    "DaemonLook",
    "Disagreement",
    "Document",
    "DocumentError",
    "Envelope",
    "Event",
    "EventKind",
    "ExpectationLook",
    "Fact",
    "Figure",
    "Gpu",
    "GpuLook",
    "GpuProcess",
    "HistoryLook",
    "InterferenceCell",
    "InterferenceDocument",
    "InterferenceProtocol",
    "MigDevice",
    "MpsFacts",
    "PastRun",
    "Pieces",
    "PollSnapshot",
    "Protocol",
    "Quantity",
    "Rate",
    "Reason",
    "ReferenceTenant",
    "Repeat",
    "ServerLook",
    "SmExpectation",
    "SourceLook",
    "Standing",
    "State",
    "SweepDocument",
    "SystemMemory",
    "Tenant",
    "TenantIdentity",
    "TenantKind",
    "Waiting",
    "WaitingClient",
    "WorkKind",
    "from_json",
    "json_schema",
    "to_json",
]
