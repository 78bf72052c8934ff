"""Writes docs/optimizers.md, docs/schedules.md and the pictures of the schedules, from what the plugins say of themselves.

    python3 scripts/catalogue/catalogue.py build/bin/gannet            write them
    python3 scripts/catalogue/catalogue.py build/bin/gannet --check    exit with 1 where they differ from what it would write

By plugin: name, params and states come from `gannet plugins info --json`, devices from the call of gannet_add_plugin, the rule and
its source from about.md beside it (## NAME for each of the file's plugins), differences from the rows of docs/differences.md that
begin with its name or mention it. A new folder in optimizers/ or schedulers/ shows up by itself.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import curves

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES = {"fp32": 4, "fp64": 8, "fp16": 2, "bf16": 2, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1}
CURVE_STEPS, CURVE_LR = 1001, 1e-3
WRITTEN = "<!-- Written by scripts/catalogue/catalogue.py: change about.md in the plugin's folder, and run it again. -->"


def wrapped(text, indent=""):
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def folders(kind):
    """[(folder, name of the plugin's target, devices)] of optimizers/ or schedulers/, by name."""
    found = []
    for file in sorted((ROOT / f"{kind}s").glob("*/CMakeLists.txt")):
        for call in re.findall(r"gannet_add_plugin\(([^)]*)\)", file.read_text()):
            words = call.split()
            devices = words[words.index("DEVICES") + 1:] if "DEVICES" in words else []
            found.append((file.parent, words[0], [each for each in devices if each in ("cpu", "cuda")]))
    return found


def plugins(gannet, kind):
    """The plugins of a kind as `info --json` has them, with their about and devices, by name."""
    found = []
    for folder, target, devices in folders(kind):
        file = gannet.resolve().parent.parent / f"lib/gannet/gannet_{kind}_{target}.so"
        done = subprocess.run([gannet, "plugins", "info", file, "--json"], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{file}: {done.stderr}build it first: ninja plugins")
        about = folder / "about.md"
        sections = re.split(r"^## (.*)\n", about.read_text(), flags=re.M)[1:] if about.exists() else []
        texts = dict(zip(sections[::2], sections[1::2]))
        for plugin in json.loads(done.stdout):
            plugin["devices"] = devices or [plugin["device"] or "any"]
            plugin["folder"] = folder.relative_to(ROOT)
            if plugin["name"] not in texts:
                print(f"{about.relative_to(ROOT)} has no section '## {plugin['name']}': its rule and source are missing", file=sys.stderr)
            plugin["about"] = texts.get(plugin["name"], f"The rule stands in `{plugin['folder']}`.").strip("\n")
            found.append(plugin)
    return sorted(found, key=lambda plugin: plugin["name"].lower())


def param_line(param):
    notes = [param["type"] + (f" {param['range']}" if param["range"] else "")]
    notes.append("required" if param["required"] else f"default {param['default']}" if param["default"] is not None else "not set")
    if param["nullable"]:
        notes.append("null: not set")
    if param["roles"]:
        notes.append("role " + " and ".join(param["roles"]))
    elif param["dynamic"]:
        notes.append("may change between steps")
    if param["deprecated"]:
        notes.append("deprecated")
    return wrapped(f"- `{param['name']}` ({'; '.join(notes)}): {param['doc'] or ''}", "  ")


def differences(name, names):
    """Rows of docs/differences.md whose first cell is about it: of all names it has that one first."""
    # A name that is an ordinary word (constant) stands in backquotes.
    patterns = (f"`{re.escape(each)}`" if each.islower() else rf"\b{re.escape(each)}\b" for each in sorted(names, key=len, reverse=True))
    rows, any_name = [], re.compile("|".join(patterns))
    for line in (ROOT / "docs/differences.md").read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and (found := any_name.search(cells[0])) and found.group().strip("`") == name:
            ours = f"Here: {cells[1]}." if cells[1] else ""
            rows.append(wrapped(f"- DeepSpeed: {cells[0]}. {ours}".strip().replace("\\|", "|"), "  "))
    return rows


def difference_lines(name, names):
    rows = differences(name, names)
    return ["", "Differs from DeepSpeed (`docs/differences.md`):", "", *rows] if rows else []


def bytes_per_parameter(states, master):
    """Of states of elements and of blocks; the others are few."""
    size = sum(BYTES[master if state["dtype"] == "master" else state["dtype"]] / (state["block"] if state["per"] == "block" else 1)
               for state in states if state["per"] in ("element", "block"))
    return f"{size:.4g}"


def needs(description):
    what = ["whole tensors" if description["whole_tensors"] else "any range of elements"]
    if description["range_alignment"] > 1:
        what.append(f"ranges that begin at multiples of {description['range_alignment']}")
    rounds = len({each["round"] for each in description["sums"]})
    for scope in ("row", "column", "tensor", "group", "model"):
        count = sum(each["of"] == scope for each in description["sums"])
        if count:
            what.append(f"{count} sum{'s' * (count > 1)} of each {scope}")
    if rounds > 1:
        what.append(f"{rounds} rounds of sums")
    if description["evaluation_weights"]:
        what.append("evaluates with other weights than it trains (`engine->eval()`)")
    if description["reduces_gradients"]:
        what.append("reduces gradients itself")
    return ", ".join(what)


def optimizer_section(plugin, names):
    description = plugin["description"]
    lines = [f"## {plugin['name']}", "", wrapped(f"{plugin['doc'][0].upper()}{plugin['doc'][1:]}."), "", plugin["about"], ""]
    lines += ["| | |", "|---|---|", f"| devices | {', '.join(plugin['devices'])} |"]
    if description:
        for per in ("element", "block", "row", "column", "tensor", "group"):
            states = [state for state in description["states"] if state["per"] == per]
            if states:
                names_of_states = ", ".join(f"`{state['name']}` ({state['dtype']})" for state in states)
                title = {"element": "parameter", "block": f"block of {states[0]['block']}"}.get(per, per)
                lines.append(f"| states per {title} | {names_of_states} |")
        sizes = [f"{bytes_per_parameter(description['states'], master)} with {master} masters" for master in description["masters"]]
        lines += [f"| bytes of states per parameter | {', '.join(sizes)} |", f"| takes | {needs(description)} |"]
    roles = [f"`{param['name']}`: {' and '.join(param['roles'])}" for param in plugin["params"] if param["roles"]]
    lines += [f"| roles | {', '.join(roles) or 'none'} |", "", "Params:", "", *(param_line(each) for each in plugin["params"])]
    return [*lines, *difference_lines(plugin["name"], names), ""]


def optimizers(gannet):
    all_of_them = plugins(gannet, "optimizer")
    names = [plugin["name"] for plugin in all_of_them]
    lines = ["# Optimizers", "", WRITTEN, "", wrapped(
        "In the formulas p is a parameter, t the number of its updates, this one counted, and the gradient is averaged, unscaled and "
        "clipped. States are those of the default params; `master` is the type of the master parameters: fp32, or fp64 in an fp64 "
        "model. A model in bf16 or fp16 has fp32 masters of 4 bytes per parameter beside the states, but with `AdamWBF16`. "
        "`docs/estimate.md` adds up a run."),
        "", "| type | rule | devices | bytes of states per parameter |", "|---|---|---|---|"]
    for plugin in all_of_them:
        size = "depends on its params"
        if description := plugin["description"]:
            size = bytes_per_parameter(description["states"], "fp32" if "fp32" in description["masters"] else description["masters"][0])
        lines.append(f"| [{plugin['name']}](#{plugin['name'].lower()}) | {plugin['doc']} | {', '.join(plugin['devices'])} | {size} |")
    return "\n".join([*lines, "", *(line for plugin in all_of_them for line in optimizer_section(plugin, names))])


def params_in(about):
    """The params of the curves: JSON dictionaries, one behind the other, in the block of about.md."""
    block = re.search(r"```json\n(.*?)```", about, re.S)
    rest, found = block.group(1).strip() if block else "", []
    while rest:
        params, end = json.JSONDecoder().raw_decode(rest)
        found.append(params)
        rest = rest[end:].strip()
    return found


def curve(gannet, name, params):
    """{"lr": [...], "momentum": [...]} by step."""
    config = {"optimizer": {"type": "AdamW", "params": {"lr": CURVE_LR}}, "scheduler": {"type": name, "params": params}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(config))
        file.flush()
        done = subprocess.run([gannet, "schedule", file.name, "--steps", str(CURVE_STEPS)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"gannet schedule with {name} and {params}: {done.stderr}")
    rows = [line.split(",") for line in done.stdout.splitlines()]
    return {title: [float(row[column]) for row in rows[1:]] for column, title in enumerate(rows[0]) if title != "step"}


def schedule_picture(gannet, plugin):
    lines = []
    for number, params in enumerate(params_in(plugin["about"]), 1):
        found = curve(gannet, plugin["name"], params)
        lines.append((found["lr"], f"rate of params {number}", False))
        if "momentum" in found and number == 1:
            lines.append((found["momentum"], "beta1 of params 1", True))
    return curves.picture(lines, max(max(values) for values, _, dashed in lines if not dashed),
                          1.0 if any(dashed for _, _, dashed in lines) else None) if lines else None


def schedules(gannet):
    pages, lines = {}, ["# Schedules", "", WRITTEN, "", wrapped(
        f"In the formulas i is the number of updates applied so far, and the first update uses the value of i = 0. The curves are those "
        f"of an optimizer whose `lr` is {CURVE_LR:g}, under each of the params below them. `gannet schedule ds_config.json --steps N` "
        "prints the values of a config."), ""]
    all_of_them = plugins(gannet, "scheduler")
    names = [plugin["name"] for plugin in all_of_them]
    for plugin in all_of_them:
        lines += [f"## {plugin['name']}", "", wrapped(f"{plugin['doc'][0].upper()}{plugin['doc'][1:]}."), ""]
        if picture := schedule_picture(gannet, plugin):
            file = f"images/schedule_{plugin['name'].lower()}.svg"
            pages[f"docs/{file}"] = picture
            lines += [f"![The curve of {plugin['name']}]({file})", ""]
        lines += [plugin["about"], "", "Params:", "", *([param_line(each) for each in plugin["params"]] or ["- none"])]
        lines += [*difference_lines(plugin["name"], names), ""]
    return {"docs/schedules.md": "\n".join(lines), **pages}


def main():
    if len(sys.argv) < 2:
        sys.exit("catalogue.py: give the program, as `python3 scripts/catalogue/catalogue.py build/bin/gannet`")
    gannet = pathlib.Path(sys.argv[1])
    pages = {"docs/optimizers.md": optimizers(gannet), **schedules(gannet)}
    stale = [name for name, text in pages.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    stale += [str(path.relative_to(ROOT)) for path in (ROOT / "docs/images").glob("schedule_*.svg")
              if str(path.relative_to(ROOT)) not in pages]
    if "--check" in sys.argv:
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}; run `python3 scripts/catalogue/catalogue.py build/bin/gannet`")
        return
    for name in stale:
        if name in pages:
            (ROOT / name).write_text(pages[name])
        else:
            (ROOT / name).unlink()
        print(name)


if __name__ == "__main__":
    main()
