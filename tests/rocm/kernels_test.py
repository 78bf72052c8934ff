"""Compiles the optimizers' kernels for AMD's processors and reads what the compiler says of each: none may spill registers, use
scratch memory, or call a function; element-wise ones have at most 128 registers, which leaves four waves on a SIMD unit.

    python3 kernels_test.py CLANG++ SOURCES FOLDER_OF_HIPS_HEADERS

The four optimizers with kernels of their own, and Adam for the element-wise ones; with GANNET_TEST_FULL and clang 17 or newer every
optimizer.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

CLANG, SOURCES, HEADERS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
FLAGS = ["-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-include", "gannet/elementwise/gpu_runtime.h", "-std=c++17", "-O2",
         "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}", f"-I{SOURCES}", f"-I{SOURCES}/sdk/include", "-S"]


def sources():
    """The file of each optimizer that is built for `rocm`: its kernels, or else its rules."""
    for cmake in sorted((SOURCES / "optimizers").glob("*/CMakeLists.txt")):
        match = re.search(r"gannet_add_plugin\(\w+ .*?SOURCES (\S+).*?DEVICES [^)]*rocm(?: GPU_SOURCES (\S+?))?\)", cmake.read_text())
        if match:
            yield cmake.parent / (match.group(2) or match.group(1))


def processors():
    for name in ("gfx90a", "gfx942"):
        known = subprocess.run([CLANG, "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", f"--offload-arch={name}", "-S", "-o",
                                os.devnull, os.devnull], capture_output=True).returncode == 0
        if known:
            yield name
        else:
            print(f"{CLANG} is too old for {name}: not compiled")


every = list(sources())
assert len(every) >= 14, every
targets = list(processors())
assert targets, f"{CLANG} compiles for none of AMD's processors"
# An older compiler keeps an array of Adan's in scratch memory.
is_whole = os.environ.get("GANNET_TEST_FULL") and len(targets) == 2
chosen = every if is_whole else [file for file in every if file.suffix == ".cu" or file.stem == "adam"]
wrong = []
with tempfile.TemporaryDirectory() as folder:
    for file in chosen:
        for target in targets:
            out = pathlib.Path(folder) / "kernels.s"
            done = subprocess.run([CLANG, *FLAGS, f"--offload-arch={target}", "-o", out, file], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"FAILED: {file} for {target}:\n{done.stderr[:4000]}")
            text = out.read_text()
            # The metadata: a list with an entry for each kernel, in which the keys are sorted.
            kernels = [dict(re.findall(r"^\s+\.(\w+):\s+(\S+)$", entry, re.M)) for entry in text.split("  - .a")[1:]]
            kernels = [kernel for kernel in kernels if "symbol" in kernel]
            assert kernels and len(kernels) == text.count(".amdhsa_kernel "), (file, target, len(kernels))
            for kernel in kernels:
                limits = {"vgpr_spill_count": 0, "sgpr_spill_count": 0, "private_segment_fixed_size": 0,
                          "vgpr_count": 128 if "elementwise_kernel" in kernel["symbol"] else 512}
                wrong += [f"{file.stem} for {target}: {kernel['symbol']} has {key} {kernel[key]}, above {most}"
                          for key, most in limits.items() if int(kernel[key]) > most]
            calls = text.count("s_swappc_b64")
            if calls:
                wrong.append(f"{file.stem} for {target}: {calls} calls of functions")
            registers = max(int(kernel["vgpr_count"]) for kernel in kernels)
            print(f"{file.stem} for {target}: {len(kernels)} kernels, at most {registers} registers, no spills")
if wrong:
    sys.exit("FAILED:\n" + "\n".join(wrong))
