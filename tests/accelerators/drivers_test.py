"""A machine whose NVIDIA driver serves nobody: "cuda" is refused with one sentence, "auto" trains on the CPU and says why.

    python3 drivers_test.py CNN FOLDER_OF_THE_STAND_IN
"""
import ctypes
import os
import subprocess
import sys

CNN, FOLDER = sys.argv[1:]
CPU = 'set "accelerator": {"type": "cpu"} in the config'
# The driver, the variables, what "cuda" says, and whether "auto" warns: a device that a program hid from itself is no news.
CASES = [("none", {}, "no NVIDIA driver: libcuda.so.1 was not found; install the driver", False),
         ("without a device", {}, "the NVIDIA driver shows no device; look at `nvidia-smi`", True),
         ("without a device", {"CUDA_VISIBLE_DEVICES": ""}, "shows no device (CUDA_VISIBLE_DEVICES is '')", False),
         ("without a device", {"CUDA_VISIBLE_DEVICES": "7,x"}, "shows no device (CUDA_VISIBLE_DEVICES is '7,x')", False),
         ("too old", {"DRIVER_VERSION": "11040"}, "driver version is insufficient", True)]


def fail(message, done):
    sys.exit(f"FAILED: {message}: exit code {done.returncode}\n{done.stdout}")


def run(accelerator, driver, variables):
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | variables
    if driver != "none":
        environment["LD_LIBRARY_PATH"] = f"{FOLDER}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return subprocess.run([CNN, "--epochs", "1", "--set", f"accelerator.type={accelerator}", "--set", "train_batch_size=1000"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=120)


try:
    ctypes.CDLL("libcuda.so.1")
    sys.exit(77)  # this machine has a driver
except OSError:
    pass
for driver, variables, sentence, warns in CASES:
    case = f"driver {driver}, {variables}"
    refused = run("cuda", driver, variables)
    errors = [line for line in refused.stdout.splitlines() if line.startswith("cnn: ")]
    if refused.returncode == 0 or len(errors) != 1 or sentence not in errors[0] or CPU not in refused.stdout:
        fail(f"{case}: 'cuda' is not refused with '{sentence}'", refused)
    trained = run("auto", driver, variables)
    if trained.returncode != 0 or "held-out accuracy" not in trained.stdout:
        fail(f"{case}: 'auto' does not train", trained)
    if (sentence in trained.stdout) != warns:
        fail(f"{case}: 'auto' {'does not say' if warns else 'says'} why it took the CPU", trained)
    print(f"{case}: {errors[0]}")
