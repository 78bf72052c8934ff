"""Writes docs/optimizers.md, docs/schedules.md and the pictures of the schedules, from what the plugins say of themselves.

    python3 scripts/catalogue/catalogue.py build/bin/gannet            write them
    python3 scripts/catalogue/catalogue.py build/bin/gannet --check    exit with 1 where they differ from what it would write

By plugin: name, params and states come from `gannet plugins info --json`, devices from the call of gannet_add_plugin, the rule with its
source, limits and differences from DeepSpeed from about.md beside it (## NAME for each of the file's plugins). A page opens with
optimizers/about.md or schedulers/about.md, where a line `<!-- types -->` is replaced by the table of all plugins. A param in a table
of that file, as | `lr`: 1e-3 | ..., is explained there: a plugin's own section names it, with its default where that is another one,
unless type or roles differ.
A new folder in optimizers/ or schedulers/ shows up by itself.
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
            plugin["about"] = texts.get(plugin["name"], f"The rule is in `{plugin['folder']}`.").strip("\n")
            found.append(plugin)
    return sorted(found, key=lambda plugin: plugin["name"].lower())


def cell(text):
    return text.replace("|", "\\|")


def signature(param):
    return param["type"], param["range"], tuple(param["roles"])


def common_params(intro, all_of_them):
    """{name: (the signature that most plugins give it, its default)} of the params that the page's opening explains."""
    common = {}
    for name, default in re.findall(r"^\| ?`(\w+)`(?:: `?([^|`]*)`?)? ?\|", intro, re.M):
        if given := [signature(param) for plugin in all_of_them for param in plugin["params"] if param["name"] == name]:
            common[name] = max(given, key=given.count), default.strip()
    return common


def with_range(param):
    """The default, and the range where it is not that of most numbers."""
    default = param["default"].strip('"').replace("|", "\\|") if param["default"] is not None else "required" if param["required"] else "unset"
    default = f"`{default}`" if "*" in default or "[" in default else default
    if param["type"].startswith("one of "):
        return f"{default}; {param['type'][7:].replace(', ', '/')}"
    closed = {">= 0 and < 1": "[0, 1)", ">= 0 and <= 1": "[0, 1]", "> 0 and < 1": "(0, 1)"}
    return default if param["range"] in ("", ">= 0") else f"{default}; {closed.get(param['range'], param['range'].replace(' ', ''))}"


def params_of(plugin, common, all_of_them):
    """The lines of a plugin's params: defaults of the common ones, a table of its own, and those without an effect. Of plugins of
    one file with the same params the last one has the table."""
    alike = [each["name"] for each in all_of_them if each["folder"] == plugin["folder"] and each["params"] == plugin["params"]]
    if plugin["params"] and alike[-1] != plugin["name"]:
        return [f"Params: those of [{alike[-1]}](#{alike[-1].lower()})."]
    shared, own, idle = [], [], []
    for param in plugin["params"]:
        name, doc = f"`{param['name']}`", param["doc"] or ""
        same, default = common.get(param["name"], (None, None))
        if same == signature(param):
            own_default = (param["default"] or ("required" if param["required"] else "unset")).strip('"')
            if not doc.startswith("refused"):
                shared.append(name if own_default == default else f"{name} {own_default}")
        elif doc.startswith(("no effect", "accepted")):
            idle.append(name)
        else:
            own.append(f"|{name}: {with_range(param)}|{cell(doc)}|")
    lines = [wrapped(f"Params: {', '.join(shared)}.")] if shared else []
    lines += ["", "|param: default|meaning|", "|---|---|", *own] if own else []
    lines += ["", f"Accepted without effect: {', '.join(idle)}."] if idle else []
    return lines[1:] if lines and not lines[0] else lines


def opening(room, table):
    text = (ROOT / room / "about.md").read_text()
    title, rest = text.split("\n", 1)
    return "\n".join([title, "", WRITTEN, rest.rstrip("\n").replace("<!-- types -->", "\n".join(table)), ""])


def bytes_per_parameter(states, master):
    """Of states of elements and of blocks; the others are few."""
    size = sum(BYTES[master if state["dtype"] == "master" else state["dtype"]] / (state["block"] if state["per"] == "block" else 1)
               for state in states if state["per"] in ("element", "block"))
    return f"{size:.4g}"


def states_line(description):
    """The states of the default params, of type master unless another one is named; empty where they are those of most types."""
    if [(each["name"], each["dtype"]) for each in description["states"]] == [("exp_avg", "master"), ("exp_avg_sq", "master")]:
        return ""
    words = []
    for per in ("element", "block", "row", "column", "tensor", "group"):
        states = [state for state in description["states"] if state["per"] == per]
        names = ", ".join(f"`{each['name']}`" + ("" if each["dtype"] == "master" else f" ({each['dtype']})") for each in states)
        if names:
            words.append(names if per == "element" else f"by {'block of ' + str(states[0]['block']) if per == 'block' else per} {names}")
    return f"States: {'; '.join(words) or 'none'}."


def optimizer_section(plugin, common, all_of_them):
    lines = [f"## {plugin['name']}", "", plugin["about"], ""]
    if plugin["description"] and (states := states_line(plugin["description"])):
        lines += [wrapped(states), ""]
    return [*lines, *params_of(plugin, common, all_of_them), ""]


def optimizers(gannet):
    all_of_them = plugins(gannet, "optimizer")
    table = ["|type|rule|bytes|", "|---|---|---|"]
    for plugin in all_of_them:
        size, name = "depends on its params", plugin["name"]
        if description := plugin["description"]:
            size = bytes_per_parameter(description["states"], "fp32" if "fp32" in description["masters"] else description["masters"][0])
            size += "" if "fp64" in description["masters"] else f" ({' and '.join(description['masters'])} only)"
        rule = re.sub(rf"^{name}[:,] ", "", cell(plugin["doc"]), flags=re.I) + (" (CPU alone)" if plugin["devices"] == ["cpu"] else "")
        table.append(f"|[{name}](#{name.lower()})|{rule}|{size}|")
    intro = opening("optimizers", table)
    common = common_params(intro, all_of_them)
    return "\n".join([intro, *(line for plugin in all_of_them for line in optimizer_section(plugin, common, all_of_them))])


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
    pages, sections = {}, []
    all_of_them = plugins(gannet, "scheduler")
    table = ["|type|curve|", "|---|---|", *(f"|[{each['name']}](#{each['name'].lower()})|{each['doc']}|" for each in all_of_them)]
    intro = opening("schedulers", table)
    common = common_params(intro, all_of_them)
    for plugin in all_of_them:
        sections += [f"## {plugin['name']}", ""]
        if picture := schedule_picture(gannet, plugin):
            file = f"images/schedule_{plugin['name'].lower()}.svg"
            pages[f"docs/{file}"] = picture
            sections += [f"![{plugin['name']}]({file})", ""]
        params = params_of(plugin, common, all_of_them)
        sections += [plugin["about"], "", *params, *([""] if params else [])]
    return {"docs/schedules.md": "\n".join([intro, *sections]), **pages}


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
