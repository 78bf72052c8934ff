"""Checks who includes whom in core/ and tools/, and that vendor headers, Boost and the JSON library stay in their rooms."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# A room may include the rooms named here, and itself; all may include base and the public headers.
core = {
    "base": set(),
    "mesh": {"interfaces", "plugin", "config", "control"},
    "config": set(),
    "plugin": {"config"},
    "tensor": set(),
    "interfaces": {"plugin"},
    "device": {"tensor", "plugin", "interfaces"},
    "files": {"tensor", "config"},
    "checkpoint": {"tensor", "config", "files"},
    "data": {"tensor", "files"},
    "control": {"interfaces", "plugin", "config", "tensor", "device"},
    "observe": {"config"},
    "params": {"tensor", "config", "plugin", "interfaces", "device", "observe", "mesh"},
    "grads": {"tensor", "config", "plugin", "interfaces", "device", "observe", "params"},
    "update": {"tensor", "config", "plugin", "interfaces", "device", "observe", "params", "grads"},
    "state": {"tensor", "interfaces", "checkpoint", "control"},
    "profiler": {"tensor", "params"},
    "activation": {"tensor", "config", "interfaces", "device", "params"},
    "estimate": {"tensor", "config", "plugin", "interfaces", "device", "control", "params", "activation"},
}
core["engine"] = set(core)
core["pipeline"] = {"engine", "config", "control", "device", "interfaces", "mesh", "params", "observe", "estimate", "tensor"}
tools = {
    "launch": {"control"},
    "report": set(),
    "train": set(),
    "convert": {"tensor", "config", "files", "checkpoint"},
    "doctor": {"config", "plugin", "interfaces", "device", "control"},
}
# Without LibTorch: of params it has the layout alone.
tools["kit"] = {"plugin", "interfaces", "params"}
tools["cli"] = (set(core) - {"engine"}) | set(tools)
allowed = core | tools
wrong = []


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^">]+)[">]', line)
        if match:
            yield number, match.group(1)


for path in sorted([*(root / "core").rglob("*"), *(root / "tools").rglob("*")]):
    if path.suffix not in (".h", ".cpp"):
        continue
    room = path.relative_to(root).parts[1]
    for number, name in includes(path):
        where = f"{path.relative_to(root)}:{number}"
        head = name.split("/")[0]
        if head in allowed and room != "include" and head != room and head != "base" and head not in allowed.get(room, set()):
            wrong.append(f"{where}: room '{room}' may not include '{name}'")
        if room == "include" and head in allowed:
            wrong.append(f"{where}: a public header may not include the core's own '{name}'")
        if name == "engine/impl.h" and room != "engine":
            wrong.append(f"{where}: the engine's insides are for core/engine alone; rooms above it have engine/micro_batch.h")
        if room == "pipeline" and head == "engine" and name != "engine/micro_batch.h":
            wrong.append(f"{where}: a room above the engine enters by engine/micro_batch.h alone")
        if head == "boost" and room != "plugin":
            wrong.append(f"{where}: Boost belongs in core/plugin alone")
        if head == "nlohmann" and room == "include":
            wrong.append(f"{where}: the JSON library may not stand in a public header")
        if re.match(r"(cuda|hip|nccl)", head) or name.startswith(("ATen/cuda", "c10/cuda")):
            wrong.append(f"{where}: vendor headers belong in plugins")
        if name == "torch/torch.h":
            wrong.append(f"{where}: include LibTorch's small headers in core")
for folder in ("accelerators", "optimizers", "schedulers", "plugins"):
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu"):
            for number, name in includes(path):
                if name.startswith("gannet/") and not name.startswith(("gannet/abi.h", "gannet/sdk", "gannet/elementwise/")):
                    wrong.append(f"{path.relative_to(root)}:{number}: a plugin includes the SDK and nothing else of ours, found '{name}'")
# Libraries over the public headers: of ours they include those, their own files, and what is named here.
public = {path.name for path in (root / "core" / "include" / "gannet").glob("*.h")}
libraries = {"nn": {"nn", "common"}, "generation": {"generation"}, "models": set(), "common": {"common"}, "exported": {"common"},
             "trainer": {"common"}, "trial": {"common"}}
# Public headers of a library that another one is built over.
builds_over = {"models": ["generation/include"], "nn": ["sdk/include"]}
private = {path.name for library in libraries for path in (root / library).glob("*.h")}
for library, shared in libraries.items():
    headers = {str(path.relative_to(root / folder)) for folder in [f"{library}/include", *builds_over.get(library, [])]
               for path in (root / folder).rglob("*.h")}
    for path in sorted((root / library).rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        is_public = "include" in path.relative_to(root / library).parts
        for number, name in includes(path):
            where = f"{path.relative_to(root)}:{number}"
            head = name.split("/")[0] if "/" in name else ""
            if name.startswith("gannet/") and name not in headers and name.removeprefix("gannet/") not in public:
                wrong.append(f"{where}: {library}/ includes public headers alone, found '{name}'")
            if head in set(allowed) | set(libraries) and head not in shared:
                wrong.append(f"{where}: {library}/ may not include '{name}'")
            if name == "torch/torch.h":
                wrong.append(f"{where}: include LibTorch's small headers")
            if "nlohmann" in name and library != "common":
                wrong.append(f"{where}: the JSON library stands in common/ alone")
            if is_public and (name in private or head == "common" or name.startswith(("nlohmann", "yaml", "CLI"))):
                wrong.append(f"{where}: a public header may not include '{name}'")
print("\n".join(wrong) if wrong else "rooms: every include is in order")
sys.exit(1 if wrong else 0)
