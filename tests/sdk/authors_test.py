"""An author's way: `gannet plugins new` with the SDK alone, for every kind and language; then a model trained with the result.

    python3 authors_test.py CMAKE BUILD CC CXX

Each project must configure, build and pass its own checks in a root without LibTorch, Boost and this tree (alone.sh; where the
system has no user namespaces, with an emptied environment). What was compiled and what is linked is looked at in both cases.
Then the installed Gannet trains examples/gpt2 with the new optimizer on 2 ranks: the same losses at every ZeRO stage and tier.
GANNET_TEST_FULL=1 makes the schedule and the tiers in C99, too, and trains every combination, with those of C99 as well.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECTS = [("optimizer", "c++"), ("scheduler", "c++"), ("offload", "c++"), ("comm", "c++"), ("accelerator", "c++"),
            ("optimizer", "c99")]
# What a plugin of the stable tier may need.
SYSTEM = ("linux-vdso", "libstdc++", "libm.", "libgcc_s", "libc.", "/lib64/ld-linux", "/lib/ld-linux")
FULL = os.environ.get("GANNET_TEST_FULL") == "1"
if FULL:
    PROJECTS += [("scheduler", "c99"), ("offload", "c99")]
STEPS = 8


def fail(message):
    sys.exit(f"FAILED: {message}")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    return done.returncode, done.stdout


def must(*command, **options):
    code, text = run(*command, **options)
    if code != 0:
        fail(f"{' '.join(map(str, command))}: exit code {code}\n{text}")
    return text


class Workshop:
    """Where an author works: the SDK, a folder, and how a command runs there."""

    def __init__(self, work, sdk):
        self.work = work / "author"
        self.work.mkdir()
        self.sdk = sdk
        code, _ = run(HERE / "alone.sh", sdk, self.work, "true")
        self.is_alone = code == 0
        print("a root with the SDK and a compiler alone" if self.is_alone else "no user namespaces: an emptied environment")
        if self.is_alone:  # the proof that it is one
            for gone in ("/usr/include/boost/version.hpp", "/usr/include/hwy/highway.h", HERE, pathlib.Path.home() / ".cache"):
                must(HERE / "alone.sh", sdk, self.work, "sh", "-c", f"! test -e {gone}")

    def place(self, path):
        return "/" + str(path) if self.is_alone else {"sdk": self.sdk, "work": self.work}[path]

    def do(self, *command):
        if self.is_alone:
            return must(HERE / "alone.sh", self.sdk, self.work, *command)
        clean = {"PATH": "/usr/bin:/bin", "HOME": str(self.work), "LIBTORCH_ROOT": "/nowhere"}
        return must(*command, env=clean, cwd=self.work)


def make(shop, cmake, compilers, kind, language):
    """A project from nothing to its own checks. Returns the plugin's file."""
    name = f"mine_{kind}" if language == "c++" else f"mine_{kind}_c"
    if kind == "optimizer" and language == "c++":
        name = "mine"
    work, sdk = shop.place("work"), shop.place("sdk")
    folder = f"{work}/{name}"
    said = shop.do(f"{sdk}/bin/gannet", "plugins", "new", kind, name, "--language", language, "--folder", folder)
    if f"-DCMAKE_PREFIX_PATH={sdk}" not in said:
        fail(f"`plugins new` does not say where its SDK is:\n{said}")
    cc, cxx = compilers
    compiler = f"-DCMAKE_CXX_COMPILER={cxx}" if language == "c++" else f"-DCMAKE_C_COMPILER={cc}"
    flags = f"-DCMAKE_{'CXX' if language == 'c++' else 'C'}_FLAGS=-Wall -Wextra -Werror{'' if language == 'c++' else ' -pedantic'}"
    plain = () if shop.is_alone else ("-DGANNET_RULE_HIGHWAY=OFF",)  # the root has no Highway
    shop.do(cmake, "-G", "Ninja", "-S", folder, "-B", f"{folder}/build", f"-DCMAKE_PREFIX_PATH={sdk}", compiler, flags, *plain)
    shop.do(cmake, "--build", f"{folder}/build")
    tests = shop.do("ctest", "--test-dir", f"{folder}/build", "--verbose")
    if f"gannet_{kind}_{name}_check" not in tests or "0 failed" not in tests:
        fail(f"{name}: ctest ran no checks\n{tests}")
    for line in shop.do("ninja", "-C", f"{folder}/build", "-t", "deps").splitlines():
        path = line.strip()
        if path.startswith("/") and ("boost" in path or "torch" in path or str(HERE.parents[1]) + "/" in path):
            fail(f"{name} was compiled with {path}")
    plugin = shop.work / name / "build/lib/gannet" / f"gannet_{kind}_{name}.so"
    for line in must("ldd", plugin).splitlines():
        if not line.strip().startswith(SYSTEM):
            fail(f"{name} needs {line.strip()}")
    print(f"{name}: built and checked", flush=True)
    return plugin


def break_rule(shop, cmake):
    """The test of a project can fail: a rule that moves parameters by their place in the call is found."""
    source = shop.work / "mine/mine.cpp"
    text = source.read_text()
    source.write_text(text.replace("m = keep * m + g;", "m = keep * m + g + T(reinterpret_cast<uintptr_t>(&p) % 4096);"))
    folder = f"{shop.place('work')}/mine"
    shop.do(cmake, "--build", f"{folder}/build")
    command = ["ctest", "--test-dir", f"{folder}/build", "--output-on-failure"]
    if shop.is_alone:
        command = [HERE / "alone.sh", shop.sdk, shop.work, *command]
    code, said = run(*command)
    if code == 0 or "FAIL      " not in said:
        fail(f"a rule that is wrong passes its checks\n{said}")
    source.write_text(text)
    shop.do(cmake, "--build", f"{folder}/build")


class Training:
    def __init__(self, work, build, prefix, plugins):
        self.work, self.gpt2, self.prefix = work / "training", build / "bin/gpt2", prefix
        self.work.mkdir()
        self.config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
                       "plugins": {"path": [str(plugin) for plugin in plugins]},
                       "optimizer": {"type": "mine", "params": {"lr": 0.3, "weight_decay": 0.01}}}
        self.first = {}  # losses by (what, dtype) at stage 0

    def start(self, changes, ranks):
        file, metrics = self.work / "ds_config.json", self.work / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        file.write_text(json.dumps({**self.config, **changes}))
        return run(self.prefix / "bin/gannet", "run", "--num_procs", ranks, self.gpt2, "--layers", 1, "--width", 32, "--heads", 2,
                   "--seq-len", 32, "--steps", STEPS, "--generate", 0, "--metrics", metrics, "--deepspeed_config", file,
                   env={**os.environ, "LD_LIBRARY_PATH": str(self.prefix / "lib"), "OMP_NUM_THREADS": "1"})

    def refused(self, changes):
        code, said = self.start(changes, 2)
        if code != 2:
            fail(f"exit code {code} in place of a refusal\n{said}")
        return said

    def losses(self, name, changes, ranks=2):
        metrics = self.work / "metrics.jsonl"
        code, said = self.start(changes, ranks)
        if code != 0:
            fail(f"{name}: exit code {code}\n{said}")
        if not any(changes.get("optimizer", self.config["optimizer"])["type"] in line.split() for line in said.splitlines()):
            fail(f"{name}: another optimizer trained\n{said}")
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]

    def same(self, name, dtype, changes, reference):
        precision = {"bf16": {"enabled": True}} if dtype == "bf16" else {}
        losses = self.losses(f"{name}, {dtype}", {**precision, **changes})
        if len(losses) != STEPS or losses[-1] > losses[0] - 0.3:
            fail(f"{name}, {dtype}: it does not learn: {losses}")
        first = self.first.setdefault((reference, dtype), losses)
        if losses != first:
            fail(f"{name}, {dtype}: losses {losses}, at stage 0 {first}")
        print(f"{name}, {dtype}: {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)


def trust(training, prefix, plugins, work):
    """A config that wants its plugins trusted: none of mine trains before it is listed, nor after it has changed."""
    listed = work / "trusted"
    trusted = {"plugins": {**training.config["plugins"], "trusted": str(listed)}}
    mine = next(plugin for plugin in plugins if plugin.name == "gannet_optimizer_mine.so")
    command = (prefix / "bin/gannet", "plugins", "trust", "--trusted", listed)
    must(*command, prefix / "lib/gannet")
    said = training.refused(trusted)
    if f"plugin {mine} is not trusted" not in said or f"gannet plugins trust --trusted {listed} {mine}" not in said:
        fail(f"an optimizer that is not trusted is refused otherwise:\n{said}")
    must(*command, mine)
    training.same("mine, trusted", "fp32", trusted, "mine")
    whole = mine.read_bytes()
    mine.write_bytes(whole + b"\n")
    said = training.refused(trusted)
    if f"plugin {mine} has changed since it was trusted" not in said:
        fail(f"an optimizer that has changed is refused otherwise:\n{said}")
    mine.write_bytes(whole)
    print("mine: refused, trusted, refused after a change", flush=True)


def zero(stage, optimizer=None, param=None, nvme=None):
    place = lambda device: {"device": device, **({"nvme_path": str(nvme)} if device == "nvme" else {})}
    block = {"stage": stage}
    if optimizer:
        block["offload_optimizer"] = place(optimizer)
    if param:
        block["offload_param"] = place(param)
    return {"zero_optimization": block}


def train(work, build, prefix, plugins):
    training = Training(work, build, prefix, plugins)
    nvme = work / "nvme"
    nvme.mkdir()
    dtypes = ("fp32", "bf16")
    every = [(0, None, None), (1, None, None), (2, None, None), (3, None, None), (1, "cpu", None), (2, "cpu", None),
             (3, "cpu", "cpu"), (1, "nvme", None), (2, "nvme", None), (3, "nvme", "nvme")]
    quick = [(0, None, None), (1, None, None), (2, "cpu", None), (3, None, None), (3, "nvme", "nvme")]
    for dtype in dtypes:
        for stage, optimizer, param in every if FULL else quick:
            training.same(f"mine at stage {stage}, states {optimizer}, parameters {param}", dtype,
                          zero(stage, optimizer, param, nvme), "mine")
    # The other kinds, each named in the config of a run of its own.
    schedule = {"scheduler": {"type": "mine_scheduler", "params": {"warmup_num_steps": 3}}}
    training.same("mine_scheduler", "fp32", schedule, "schedule")
    training.same("mine_offload", "fp32", zero(2, "mine_offload"), "mine")
    trust(training, prefix, plugins, work)
    alone = training.losses("mine_comm, mine_accelerator", {"comm": {"type": "mine_comm"}, "accelerator": {"type": "mine_accelerator"}}, ranks=1)
    if alone[-1] > alone[0] - 0.3:
        fail(f"mine_comm, mine_accelerator: it does not learn: {alone}")
    if not FULL:
        return
    optimizer = {"optimizer": {**training.config["optimizer"], "type": "mine_optimizer_c"}}
    for dtype in dtypes:
        for stage, states, param in every:
            training.same(f"C99 at stage {stage}, states {states}, parameters {param}", dtype,
                          {**zero(stage, states, param, nvme), **optimizer}, "C99")
    training.same("mine_offload_c", "fp32", zero(2, "mine_offload_c"), "mine")
    training.same("mine_scheduler_c", "fp32",
                  {"scheduler": {"type": "mine_scheduler_c", "params": {"warmup_num_steps": 3}}}, "schedule in C99")


def main():
    cmake, build, cc, cxx = sys.argv[1:5]
    build = pathlib.Path(build)
    with tempfile.TemporaryDirectory(prefix="gannet-authors-") as name:
        work = pathlib.Path(name).resolve()
        sdk, prefix = work / "sdk", work / "gannet"
        must(cmake, "--install", build, "--prefix", sdk, "--component", "sdk")
        shop = Workshop(work, sdk)
        plugins = [make(shop, cmake, (cc, cxx), kind, language) for kind, language in PROJECTS]
        break_rule(shop, cmake)
        must(cmake, "--install", build, "--prefix", prefix, "--component", "runtime")
        train(work, build, prefix, plugins)
    print("an author's way is open")


if __name__ == "__main__":
    main()
