"""nvidia-smi: the recorded `-q -x` document with this stack's GPUs and processes, and the compute-apps CSV.

One element is ours: `rehearsal_sm_count`, because the real report does not tell how many multiprocessors there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib import resources

import msgspec

from mpswatch.rehearsal import caps, gpus

WAYS = frozenset(
    {
        "",
        "hang",
        "na",
        "permissions",
        "unified",
        "mig",
        "garbage",
        "half",
        "empty",
        "fail",
        "lost",
        "no_devices",
        "no_processes",
    }
)
FAILURE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n\n"
)
LOST = (
    "Unable to determine the device handle for GPU0: 0000:00:06.0: GPU is lost.  "
    "Reboot the system to recover this GPU\n"
)
MIG_DEVICE = """\t\t\t<mig_device>
\t\t\t\t<index>0</index>
\t\t\t\t<gpu_instance_id>1</gpu_instance_id>
\t\t\t\t<compute_instance_id>0</compute_instance_id>
\t\t\t\t<device_attributes>
\t\t\t\t\t<shared>
\t\t\t\t\t\t<multiprocessor_count>60</multiprocessor_count>
\t\t\t\t\t</shared>
\t\t\t\t</device_attributes>
\t\t\t\t<fb_memory_usage>
\t\t\t\t\t<total>71424 MiB</total>
\t\t\t\t\t<reserved>0 MiB</reserved>
\t\t\t\t\t<used>44 MiB</used>
\t\t\t\t\t<free>71379 MiB</free>
\t\t\t\t</fb_memory_usage>
\t\t\t</mig_device>"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one device."""

    pid: int
    device: int
    memory_mib: int
    mps_client: bool
    name: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that nvidia-smi can see, and the way in which it was told to be wrong."""

    devices: int
    rows: Sequence[Row]
    utilization: int = 0
    used_by_nobody_mib: int = 0
    how: str = ""


def answer(arguments: Sequence[str], view: View) -> tuple[int, bytes]:
    """Exit status and output of `nvidia-smi ARGUMENTS`."""
    broken = {"fail": (9, FAILURE), "lost": (15, LOST), "no_devices": (6, "No devices were found\n"), "empty": (0, "")}
    if view.how in broken:
        return broken[view.how][0], broken[view.how][1].encode()
    if view.how == "garbage":
        return 0, b"\x7fELF\x02\x01\xff\xfe<nvidia_smi_log><gpu>" * 40
    query = [argument for argument in arguments if argument.startswith("--query-compute-apps")]
    if query:
        fields = query[0].partition("=")[2].split(",")
        style = ",".join(argument for argument in arguments if argument.startswith("--format"))
        output = _csv(fields, style, view)
    elif "-L" in arguments:
        output = "".join(f"GPU {index}: {gpus.NAME} (UUID: {gpus.uuid(index)})\n" for index in range(view.devices))
    elif "-q" in arguments and "-x" in arguments:
        output = _xml(view)
    else:
        return 2, b"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
    encoded = output.encode(errors="surrogateescape")
    return 0, encoded[: len(encoded) // 2] if view.how == "half" else encoded


def _memory(row: Row, view: View) -> str:
    if view.how in {"na", "mig"}:
        return "N/A"
    return "Insufficient Permissions" if view.how == "permissions" else f"{row.memory_mib} MiB"


def _rows(view: View) -> list[Row]:
    return [] if view.how == "no_processes" else sorted(view.rows, key=lambda row: row.pid)


def _csv(fields: Sequence[str], style: str, view: View) -> str:
    names = {"used_memory": "used_gpu_memory [MiB]", "used_gpu_memory": "used_gpu_memory [MiB]", "name": "process_name"}
    lines = [] if "noheader" in style else [", ".join(names.get(field, field) for field in fields)]
    for row in _rows(view):
        memory = _memory(row, view)
        if memory[0].isdigit():
            memory = memory.removesuffix(" MiB") if "nounits" in style else memory
        else:
            memory = f"[{memory}]"
        name = row.name.replace(",", "?")  # as the real one does
        known = {"pid": str(row.pid), "process_name": name, "name": name, "gpu_uuid": gpus.uuid(row.device)}
        lines.append(", ".join({**known, "used_memory": memory, "used_gpu_memory": memory}[field] for field in fields))
    return "".join(line + "\n" for line in lines)


def _template(name: str) -> str:
    return resources.files("mpswatch.rehearsal").joinpath(name).read_text()


def _fill(template: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        template = template.replace(f"@{key}@", value)
    return template


def _xml(view: View) -> str:
    now = datetime.now().astimezone()
    head = {"TIMESTAMP": f"{now:%a %b %e %H:%M:%S %Y}", "COUNT": str(view.devices)}
    devices = "".join(_gpu(index, view) for index in range(view.devices))
    return _fill(_template("nvidia-smi.xml"), {**head, "GPUS": devices})


def _gpu(index: int, view: View) -> str:
    rows = [row for row in _rows(view) if row.device == index]
    used = sum(row.memory_mib for row in view.rows if row.device == index) + view.used_by_nobody_mib + 16
    memory = {"TOTAL": gpus.MEMORY_MIB, "RESERVED": gpus.RESERVED_MIB, "USED": used}
    memory["FREE"] = max(gpus.MEMORY_MIB - gpus.RESERVED_MIB - used, 0)
    whole = {key: "N/A" if view.how == "unified" else f"{value} MiB" for key, value in memory.items()}
    mig = view.how == "mig"
    return _fill(
        _template("nvidia-smi-gpu.xml"),
        {
            **whole,
            "BUS": gpus.bus(index),
            "NAME": gpus.NAME,
            "SMS": str(caps.SM_TOTAL),
            "UUID": gpus.uuid(index),
            "INDEX": str(index),
            "MIG": "Enabled" if mig else "Disabled",
            "MIG_DEVICES": MIG_DEVICE if mig else "\t\t\tNone",
            "UTILIZATION": "N/A" if mig else f"{view.utilization} %",
            "PROCESSES": "".join(_process(row, view) for row in rows),
        },
    )


def _process(row: Row, view: View) -> str:
    name = row.name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    fields = {
        "gpu_instance_id": "N/A",
        "compute_instance_id": "N/A",
        "pid": str(row.pid),
        "type": "M+C" if row.mps_client else "C",
        "process_name": name,
        "used_memory": _memory(row, view),
    }
    lines = "".join(f"\t\t\t\t<{key}>{value}</{key}>\n" for key, value in fields.items())
    return f"\t\t\t<process_info>\n{lines}\t\t\t</process_info>\n"
