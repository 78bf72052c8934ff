"""The rows of each phase: what run.py starts, each in a process of its own."""
import os
import pathlib

PACK = pathlib.Path(__file__).resolve().parent


class Row:
    """`expect`: the name under which the losses of the same training on the CPU are in expected.json; None: the exit code says it."""

    def __init__(self, phase, name, command, seconds, expect=None, environment=None, same_as=None):
        self.phase, self.name, self.command, self.seconds = phase, name, command, seconds
        self.expect, self.environment, self.same_as = expect, environment or {}, same_as


STAGES_AND_TIERS = [("0", "none"), ("1", "none"), ("1", "optimizer"), ("2", "none"), ("2", "optimizer"),
                    ("3", "none"), ("3", "optimizer"), ("3", "both"), ("3", "nvme")]
WAYS = ["plain", "regions", "reentrant", "layers", "operators", "stream"]


def trainings():
    """Every dtype at every stage and tier, and every way at stage 0 and where parameters are away."""
    rows = [(stage, tiers, dtype, "plain") for dtype in ("fp32", "bf16", "fp16") for stage, tiers in STAGES_AND_TIERS]
    rows += [(stage, tiers, dtype, way) for dtype in ("fp32", "bf16") for way in WAYS[1:] for stage, tiers in
             (("0", "none"), ("2", "optimizer"), ("3", "both"))]
    return rows


def row_name(training):
    stage, tiers, dtype, way = training
    return f"stage {stage}, {tiers}, {dtype}, {way}"


def program(*arguments):
    return [str(PACK / "tests" / arguments[0]), *arguments[1:]]


def gannet(*arguments):
    return [str(PACK / "bin" / "gannet"), *arguments]


def probe(accelerator):
    rows = [Row("probe", "plugins list", gannet("plugins", "list"), 60), Row("probe", "doctor", gannet("doctor"), 120)]
    if accelerator == "cuda":
        rows.insert(0, Row("probe", "nvidia-smi", ["nvidia-smi"], 30))
    rows.append(Row("probe", "one training", program("device_rows", accelerator, "0", "none", "fp32", "plain"), 90,
                    expect=row_name(("0", "none", "fp32", "plain"))))
    return rows


def tests(accelerator, list_tests):
    """A process for each test, and one for each accelerator of a parameterised one."""
    rows = []
    for name, only in {"cuda": (("gpu_test", ""), ("accelerators_test", "cuda")),
                       "checked": (("accelerators_checked_test", ""),)}.get(accelerator, (("accelerators_test", accelerator),)):
        if not (PACK / "tests" / name).exists():
            continue
        rows += [Row("tests", f"{name}: {test}", program(name, f"--gtest_filter={test}"), 60)
                 for test in list_tests(program(name, "--gtest_list_tests")) if only in test.rsplit("/", 1)[-1]]
    return rows


def matrix(accelerator):
    """Each training twice: the second one to the bits of the first; on CUDA with every launch waited for, so that a wait that is
    missing shows as a difference."""
    rows = []
    for training in trainings():
        name = row_name(training)
        command = program("device_rows", accelerator, *training)
        rows.append(Row("matrix", name, command, 60, expect=name))
        rows.append(Row("matrix", name + ", again", command, 60, expect=name, same_as=name,
                        environment={"CUDA_LAUNCH_BLOCKING": "1"} if accelerator == "cuda" else {}))
    return rows


def ranks(accelerator):
    """Two ranks on one device: their tensors go through host memory."""
    return [Row("ranks", f"2 ranks: {row_name(training)}",
                gannet("run", "--num_procs", "2", *program("device_rows", accelerator, *training)), 90)
            for training in (("0", "none", "fp32", "plain"), ("2", "optimizer", "bf16", "plain"), ("3", "none", "fp32", "regions"),
                             ("3", "both", "bf16", "regions"))]


def sanitizer(accelerator):
    """memcheck over trainings; racecheck and initcheck over Gannet's kernels alone. In LibTorch's products and attention those two
    report what the tensor memory accelerator writes, and waits that they do not know."""
    if accelerator != "cuda":
        return []
    tool = os.environ.get("COMPUTE_SANITIZER", "compute-sanitizer")
    found = "--error-exitcode", "9"
    rows = [Row("sanitizer", f"memcheck: {row_name(training)}",
                [tool, "--tool", "memcheck", *found, *program("device_rows", accelerator, *training)], 180)
            for training in (("0", "none", "bf16", "plain"), ("2", "optimizer", "bf16", "plain"), ("3", "both", "bf16", "regions"))]
    for check in ("memcheck", "racecheck", "initcheck"):
        for test in ("OptimizersOnGpu.TwiceTheSameUpdateIsBitwiseTheSame", "GroupOptimizersOnGpu.GiveTheSameBitsAgainAndOnAnotherStream"):
            ours = ["--kernel-name", "kns=gannet"] if check == "racecheck" else []
            rows.append(Row("sanitizer", f"{check}: {test}",
                            [tool, "--tool", check, *ours, *found, *program("gpu_test", f"--gtest_filter={test}")], 180))
    return rows


def speed(accelerator):
    return [Row("speed", "update", program("gpu_speed", "100"), 240)] if accelerator == "cuda" else []


PHASES = ("probe", "tests", "matrix", "ranks", "sanitizer", "speed")
