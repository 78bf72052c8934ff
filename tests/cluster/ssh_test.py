"""`gannet run --hostfile` over the ssh of hosts that are namespaces of this machine (box.sh): weights that are, bit by bit, those of
one machine; what follows when a process, a connection or a host is lost; hosts that cannot take part; bytes of every kind.

    python3 ssh_test.py GANNET GPT2          # GANNET_TEST_FULL=1: more processes killed
    python3 ssh_test.py GANNET GPT2 many     # 64 hosts, 64,000 lines
"""
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from hosts import GANNET, INSIDE, Box, Cluster, enter_namespaces, fail, finish, losses_in, wait_for_step

FULL = os.environ.get("GANNET_TEST_FULL") == "1"


class Run:
    """A long training on the hosts of a file, whose head is on gannet-a."""

    def __init__(self, box, cluster, hosts, *options, name="run", steps=60, **variables):
        self.box, self.metrics = box, cluster.folder / f"{name}.jsonl"
        program = cluster.program(steps, "--save-checkpoint", cluster.folder / f"saved-{name}", "--checkpoint-every", 5, "--resume", "--metrics", self.metrics)
        self.head = box.start("gannet-a", GANNET, "run", "--hostfile", hosts, *options, *program, **variables)

    def end(self, most=30):
        output = finish([self.head], most)[0]
        self.box.expect_nothing_left(["bin/gpt2", "bin/gannet"])
        return output

    def agent_on(self, host):
        """The two processes of an agent: in front, and behind it the launcher of the ranks."""
        agents = [pid for pid in self.box.processes_on(host, "bin/gannet") if b"\0node\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        parent = {pid: int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in agents}
        launchers = [pid for pid in agents if parent[pid] in agents]
        return [pid for pid in agents if pid not in launchers][0], launchers[0]


def expect(condition, what, output):
    if not condition:
        fail(f"{what}\n{output}")


def weights(box, cluster, folder):
    hosts = folder / "hosts"
    hosts.write_text("gannet-a slots=2\ngannet-b slots=1 # a comment\n\ngannet-c slots=1\n")
    others = folder / "others"
    others.write_text("gannet-b slots=2\ngannet-c slots=2\n")
    expected, _ = cluster.train(lambda program: [box.start("gannet-a", GANNET, "run", "--num_procs", 4, *program)])
    ways = {
        "hosts with 2, 1 and 1 slots": lambda program: [box.start("gannet-a", GANNET, "run", "--hostfile", hosts, *program)],
        "a head that is not among the hosts": lambda program: [box.start("gannet-a", GANNET, "run", "-H", others, "--num_gpus", 2, *program)],
        "--no_ssh on each": lambda program: [box.start(f"gannet-{letter}", GANNET, "run", "--no_ssh", "--hostfile", hosts, "--node_rank", rank, *program) for rank, letter in enumerate("abc")],
        "--include": lambda program: [box.start("gannet-a", GANNET, "run", "--hostfile", others, "--include", "gannet-b@gannet-c:0,1", *program)],
    }
    for name, start in ways.items():
        found, output = cluster.train(start)
        expect(found == expected, f"{name}: other weights than on one machine", output)
        print(f"{name}: the weights of one machine", flush=True)
    return hosts


def pipeline(box, cluster, folder):
    """Two stages on two hosts."""
    config = folder / "pipeline.json"
    config.write_text(cluster.config.read_text().replace('"stage": 2', '"stage": 1'))
    two = folder / "two"
    two.write_text("gannet-b slots=1\ngannet-c slots=1\n")

    def staged(program):
        words = [config if word == cluster.config else word for word in program]
        words[words.index("--layers") + 1] = 4
        return [*words, "--pipeline", 2]

    expected, _ = cluster.train(lambda program: [box.start("gannet-b", GANNET, "run", "--num_procs", 2, *staged(program))])
    found, output = cluster.train(lambda program: [box.start("gannet-b", GANNET, "run", "--hostfile", two, *staged(program))])
    expect(found == expected, "a pipeline over two hosts: other weights than on one", output)
    print("a pipeline of two stages over two hosts: the weights of one machine", flush=True)


def faults(box, cluster, folder):
    hosts = folder / "three"
    hosts.write_text("gannet-a slots=1\ngannet-b slots=1\ngannet-c slots=1\n")
    cluster.config.write_text(cluster.config.read_text().replace('"train_batch_size": 4', '"train_batch_size": 3'))
    undisturbed = Run(box, cluster, hosts, name="undisturbed")
    undisturbed.end()
    expected = losses_in(undisturbed.metrics)

    def continues(name, harm, told, **variables):
        run = Run(box, cluster, hosts, "--max-restarts", 2, name=name.replace(" ", "-"), **variables)
        wait_for_step(run.metrics, 8)
        harm(run)
        output = run.end()
        expect(run.head.returncode == 0 and losses_in(run.metrics) == expected, f"{name}: {run.head.returncode}, other losses than undisturbed", output)
        expect(told in output, f"{name}: not told: {told}", output)
        print(f"{name}: started again, with the losses of an undisturbed run", flush=True)

    def ends(name, harm, code, told, steps=100_000, on=hosts):
        run = Run(box, cluster, on, name=name.replace(" ", "-"), steps=steps)
        wait_for_step(run.metrics, 3)
        harm(run)
        began = time.monotonic()
        output = run.end(20)
        expect(run.head.returncode == code, f"{name}: {run.head.returncode} in place of {code}", output)
        expect(told in output, f"{name}: not told: {told}", output)
        print(f"{name}: ended in {time.monotonic() - began:.1f} s, and nothing is left", flush=True)

    def kill_ssh(host):
        for pid in box.processes_on("gannet-a", "ssh"):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0] == b"ssh" and host.encode() in words:
                os.kill(pid, signal.SIGKILL)

    kill = lambda host, word: [os.kill(pid, signal.SIGKILL) for pid in box.processes_on(host, word)]
    continues("a killed rank", lambda run: kill("gannet-b", "bin/gpt2"), "rank 1 of 3 on gannet-b failed first, and is the cause: it was killed by SIGKILL")
    continues("a killed ssh", lambda run: kill_ssh("gannet-b"), "the connection to gannet-b (rank 1) was lost")
    ends("a killed head", lambda run: [os.kill(pid, signal.SIGKILL) for pid in box.processes_on("gannet-a", "bin/gannet") if b"\0node\0" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()], 137, "")

    def cut_for_a_while(run):
        box.call("cut", "gannet-c")
        time.sleep(3)
        box.call("mend", "gannet-c")
    run = Run(box, cluster, hosts, name="cut", steps=60)
    wait_for_step(run.metrics, 3)
    cut_for_a_while(run)
    output = run.end()
    expect(run.head.returncode == 0 and losses_in(run.metrics) == expected, "a cable cut for 3 s", output)
    print("a cable cut for 3 s: training continues", flush=True)

    if FULL:
        for which, name in enumerate(("the agent's process in front", "the agent's launcher")):
            continues(f"a killed process: {name}", lambda run: os.kill(run.agent_on("gannet-b")[which], signal.SIGKILL), "gannet-b")
        # Its ranks go on, and the others; once these have ended, the head waits no longer.
        ends("a stopped launcher", lambda run: os.kill(run.agent_on("gannet-b")[1], signal.SIGSTOP), 3, "gannet-b has not answered for 10 s and is no longer waited for: rank 1 may still run there", steps=60)
        one_stays = Run(box, cluster, hosts, name="beside", steps=60)
        other = Run(box, cluster, hosts, name="killed-beside", steps=100_000)
        wait_for_step(other.metrics, 3)
        for pid in box.processes_on("gannet-c", "bin/gpt2"):
            if b"killed-beside" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        finish([other.head, one_stays.head])
        expect(one_stays.head.returncode == 0 and losses_in(one_stays.metrics) == expected, "a run beside one that failed", one_stays.head.output.read_text())
        print("a run beside one that failed: undisturbed", flush=True)
    ends("a cable cut for good", lambda run: box.call("cut", "gannet-c"), 3, "gannet-c")
    box.call("mend", "gannet-c")
    if FULL:
        with_g = folder / "with-g"
        with_g.write_text(hosts.read_text().replace("gannet-c", "gannet-g"))
        ends("the power of a host off", lambda run: box.call("off", "gannet-g"), 3, "gannet-g", on=with_g)


def refusals(box, folder):
    """Ten hosts that cannot take part, all told at once."""
    def bind(host, source, target):
        done = finish([box.start(host, "mount", "--bind", source, target)])[0]
        expect(done == "", f"mount of {target} on {host}", done)
    with open(folder / "box/ssh_config.d/box.conf", "a") as file:
        file.write("Host locked\n HostName gannet-b\n IdentityFile /dev/null\n IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
                   "Host stranger\n HostName gannet-b\n StrictHostKeyChecking yes\n UserKnownHostsFile /dev/null\n"
                   "Host closed\n HostName gannet-b\n Port 2\n"
                   f"Host again\n HostName gannet-b\n IdentityFile {folder}/box/key\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n")
    other, banner, nothing, home = folder / "other-gannet", folder / "bashrc", folder / "empty", pathlib.Path.home() / ".bashrc"
    shutil.copy2(GANNET, other)
    with open(other, "ab") as file:
        file.write(b"\0")
    banner.write_text("echo Welcome to node c\n")
    nothing.mkdir()
    had_bashrc = home.exists()
    if not had_bashrc:
        home.write_text("")
    bind("gannet-c", banner, home)
    bind("gannet-d", other, GANNET)
    bind("gannet-e", nothing, GANNET.parent)
    bind("gannet-f", nothing, folder / "where")
    hosts = folder / "bad"
    wanted = {"nowhere-at-all": "no such host", "closed": "refuses ssh", "10.77.0.99": "cannot be reached", "locked": "asks for a password", "stranger": "its host key is not known",
              "gannet-c": "its shell writes 'Welcome to node c'", "gannet-d": "its Gannet is another build", "gannet-e": "no gannet at", "gannet-f": "there is no such file",
              "again": "is the same machine as gannet-b"}
    hosts.write_text("".join(f"{host} slots=1\n" for host in ["gannet-b", *wanted]))
    began = time.monotonic()
    run = box.start("gannet-a", GANNET, "run", "--hostfile", hosts, folder / "where/program")
    output = finish([run])[0]
    took = time.monotonic() - began
    if not had_bashrc:
        home.unlink()
    expect(run.returncode == 3 and took < 10, f"ten bad hosts: {run.returncode}, {took:.1f} s", output)
    for host, sentence in wanted.items():
        expect(any(line.strip().startswith(f"{host}: ") and sentence in line for line in output.splitlines()), f"{host}: not told: {sentence}", output)
    expect(not (folder / "started").exists(), "a rank was started", output)
    print(f"ten hosts that cannot take part: ten sentences in {took:.1f} s", flush=True)


def any_bytes(box, folder):
    letters = bytes(range(1, 256))
    odd = bytes(random.Random(5).sample(letters, 255))
    place = os.fsencode(folder) + b"/" + bytes(byte for byte in odd if byte != ord("/"))[:200]
    os.mkdir(place)
    program = place + b"/p '\"$`;\n\xff"
    pathlib.Path(os.fsdecode(program)).write_text('#!/bin/sh\nprintf %s "$1" > argument.$RANK; printf %s "$ODD" > variable.$RANK\n')
    os.chmod(program, 0o755)
    hosts = folder / "two"
    hosts.write_text("gannet-b slots=1\ngannet-c slots=1\n")
    words = [GANNET, "run", "--hostfile", hosts, "./" + os.path.basename(os.fsdecode(program)), os.fsdecode(odd)]
    run = box.start("gannet-a", "env", os.fsdecode(b"ODD=" + odd), *words, folder=place)
    output = finish([run])[0]
    for name in ("argument", "variable"):
        for rank in "01":
            with open(place + f"/{name}.{rank}".encode(), "rb") as file:
                expect(run.returncode == 0 and file.read() == odd, f"the bytes of the {name} on rank {rank}", output)
    print("argument, environment, folder and program of random bytes: unchanged", flush=True)


def many(folder):
    """64 stand-ins on 16 hosts: the time to the first line, and all lines of all ranks."""
    box = Box(folder)
    box.call("up", "16")
    with open(folder / "box/ssh_config.d/box.conf", "a") as file:
        for i in range(64):
            file.write(f"Host n{i}\n HostName gannet-{chr(97 + i // 4)}\n IdentityFile {folder}/box/key\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n")
    hosts = folder / "many"
    hosts.write_text("".join(f"n{i} slots=1\n" for i in range(64)))
    program = folder / "lines"
    program.write_text("#!/bin/sh\ni=0\nwhile [ $i -lt 100 ]; do echo $i of $RANK; i=$((i + 1)); done\n"
                       "while [ $i -lt 1000 ]; do sleep 0.1; for j in 0 1 2 3 4 5 6 7 8 9; do echo $i of $RANK; i=$((i + 1)); done; done\n")
    program.chmod(0o755)
    once, here = folder / "once", folder / "here"
    once.write_text("#!/bin/bash\nfor i in {0..63}; do ssh -o BatchMode=yes n$i true & done; wait\n")
    here.write_text("#!/bin/sh\nfor line; do :; done\nexec sh -c \"$line\"\n")
    for script in (once, here):
        script.chmod(0o755)
    began = time.monotonic()
    finish([box.start("gannet-a", once)])
    print(f"64 plain ssh at once: {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    run = box.start("gannet-a", GANNET, "run", "--hostfile", hosts, "echo", "here", GANNET_SSH=here)
    finish([run])
    expect(run.returncode == 0, "64 agents without ssh", run.output.read_text())
    print(f"64 agents without ssh: from start to end {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    run = box.start("gannet-a", GANNET, "run", "--hostfile", hosts, program, GANNET_SSH="ssh")
    first = None
    while run.poll() is None:
        if first is None and run.output.stat().st_size > 0:
            first = time.monotonic() - began
        time.sleep(0.01)
    output = run.output.read_text()
    lines = set(output.splitlines())
    missing = [(rank, i) for rank in range(64) for i in range(1000) if f"[{rank}] {i} of {rank}" not in lines]
    expect(run.returncode == 0 and not missing, f"64 ranks: {run.returncode}, {len(missing)} lines are missing", output[-2000:])
    print(f"64 hosts: the first line after {first:.1f} s, all 64,000 lines after {time.monotonic() - began:.1f} s", flush=True)
    box.call("down")


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gannet-ssh-", dir="/var/tmp") as path:
        folder = pathlib.Path(path)
        (folder / "where").mkdir()
        program = folder / "where/program"
        program.write_text(f"#!/bin/sh\necho > {folder}/started\n")
        program.chmod(0o755)
        if sys.argv[3:] == ["many"]:
            many(folder)
            return
        box = Box(folder)
        box.call("up", "7")
        cluster = Cluster(box, folder)
        weights(box, cluster, folder)
        pipeline(box, cluster, folder)
        any_bytes(box, folder)
        faults(box, cluster, folder)
        refusals(box, folder)
        box.call("down")
        print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_namespaces()
    main()
