#!/usr/bin/env python3
"""Steps of an element-wise rule from outside of the tree beside ours, with Highway and without it, and those of LARS and
Prodigy beside the bytes that they move. Prints the tables of `gannet plugins bench`.

    bench/optimizer/third_party.py build [numel] [rounds]
"""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SDK = HERE.parent.parent / "sdk"
# As gannet_add_plugin() compiles and links.
FLAGS = ["-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
         f"-I{SDK / 'include'}", f"-Wl,--version-script={SDK / 'cmake/plugin.map'}"]


def main(build, numel="16777216", rounds="9"):
    gannet, plugins = pathlib.Path(build) / "bin/gannet", pathlib.Path(build) / "lib/gannet"
    sizes = ["--numel", numel, "--rounds", rounds]
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, more in (("with_highway", ["-DGANNET_RULE_HIGHWAY=1", "-lhwy"]), ("without_highway", [])):
            files.append(pathlib.Path(folder) / f"{name}.so")
            subprocess.run(["g++", *FLAGS, f'-DOUTSIDE_NAME="{name}"', HERE / "third_party_adamw.cpp", "-o", files[-1], *more],
                           check=True)
        for dtype in ("fp32", "bf16"):
            print(f"== AdamW, {dtype}", flush=True)
            chosen = [word for name in ("AdamW", "with_highway", "without_highway") for word in ("--plugin", name)]
            subprocess.run([gannet, "plugins", "bench", plugins / "gannet_optimizer_adam.so", *files, *chosen, "--dtype", dtype,
                            *sizes], check=True)
    # LARS: 8 for its sums, 20 for its update. Prodigy: 16 for its sums, 36 for its update, which does not read p0.
    for name, count in (("lars", "28"), ("prodigy", "52")):
        print(f"== {name}", flush=True)
        subprocess.run([gannet, "plugins", "bench", plugins / f"gannet_optimizer_{name}.so", "--bytes", count, *sizes], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
