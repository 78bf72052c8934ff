#!/usr/bin/env python3
"""Takes the waits for collectives and copies out, one at a time, and shows that the test of the fake device's ranks sees each.

    tests/accelerators/omissions.py               every omission under 20 seeds; writes seen_red.txt (about 25 minutes)
    tests/accelerators/omissions.py --seeds 3     quicker
    tests/accelerators/omissions.py --checked     the report of the checked device instead, one run each (a minute)
    tests/accelerators/omissions.py --check       are all texts still where the table says? Builds nothing

An omission is red under a seed when a figure of the fake device (a loss, or the parameters at the end) differs from the CPU's.
As in tests/guest/mutations.py all are compiled in at once, asleep; the environment wakes one. The files must have no uncommitted
changes, and are restored however this ends (but for SIGKILL: git checkout core).
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/guest"))
import mutations  # noqa: E402
from mutations import Mutation  # noqa: E402

TABLE = ROOT / "tests/accelerators/seen_red.txt"
PROGRAM, WAYS_PROGRAM = "tests/accelerators_ranks_test", "tests/accelerators_ways_test"

OMISSIONS = [
    Mutation("reduced_gradients_are_not_waited_for", "block() before an averaged bucket is used",
             ("grads/reducer_buckets.cpp", "    bucket.work.block();", "    if (!MUTANT) bucket.work.block();")),
    Mutation("buckets_are_filled_while_they_are_sent", "the hold of a bucket's memory in flight",
             ("grads/reducer_buckets.cpp", "  if (accumulates) flying_.push_back(&bucket);",
              "  if (accumulates) flying_.push_back(&bucket);\n"
              "  if (accumulates && MUTANT) spare_.push_back({bucket.gathered, 0});")),
    Mutation("published_parameters_are_not_waited_for", "block() before the next forward reads what others updated",
             ("params/publish.cpp", "for (auto& work : publishing_) work.block();",
              "static std::vector<DeviceWork>& unseen = *new std::vector<DeviceWork>;\n"
              "  for (auto& work : publishing_) MUTANT ? unseen.push_back(std::move(work)) : work.block();")),
    Mutation("gathered_parameters_are_not_waited_for", "block() before an operator reads a gathered parameter",
             ("params/gatherer.cpp", "  block(std::move(entry.gathering));", "  if (!MUTANT) block(std::move(entry.gathering));")),
    Mutation("shards_are_gathered_before_they_are_there", "the copy to the device ends before the gather begins",
             ("params/gatherer.cpp", "    entry.copied.wait();", "    if (!MUTANT) entry.copied.wait();")),
    Mutation("gradients_land_unseen", "a gradient's copy to the host ends before the host adds it",
             ("grads/host_gradients.cpp", "  oldest.came.wait();", "  if (!MUTANT) oldest.came.wait();")),
    Mutation("buckets_are_filled_while_they_are_copied", "the hold of a bucket on its way to the host",
             ("grads/reducer_buckets.cpp", "  if (options_.host) options_.host->wait(spare.read_by);",
              "  if (options_.host && !MUTANT) options_.host->wait(spare.read_by);")),
    Mutation("the_host_updates_too_early", "parameters and gradients are on the host before it updates them",
             ("update/host_update.cpp", "{ slot(index).came.wait(); }", "{\n  if (!MUTANT) slot(index).came.wait();\n}")),
    Mutation("pages_are_filled_while_they_are_copied", "the hold of a page on its way to the device",
             ("update/host_update.cpp", "  one.gone.wait();  // wait until", "  if (!MUTANT) one.gone.wait();  // wait until")),
    Mutation("updated_parameters_are_used_before_they_are_there", "the copies to the device end before the step does",
             ("update/host_update.cpp", "    one.came.wait();\n    one.gone.wait();",
              "    one.came.wait();\n    if (!MUTANT) one.gone.wait();")),
]

# The fake device computes on the caller's thread: there is nothing to be early for. The checked one reports them.
OF_STREAMS = [
    Mutation("parameters_come_over_what_compute_reads", "a copy to the device waits for the stream that had the memory before",
             ("params/gatherer.cpp", "  to_device_->queue.wait_stream(to_device_->stream());",
              "  if (!MUTANT) to_device_->queue.wait_stream(to_device_->stream());")),
    Mutation("gradients_leave_before_they_are_computed", "a gradient's copy to the host waits for its stream",
             ("grads/host_gradients.cpp", "  queue_.wait_stream(stream_());", "  if (!MUTANT) queue_.wait_stream(stream_());")),
    Mutation("a_stream_does_not_wait_for_collectives", "DeviceWork::block",
             ("device/device_comm.cpp", "  work_.block(stream);", "  if (!MUTANT) work_.block(stream);")),
]


def forgotten(name, without, file, call, end=".block();", then=""):
    """The collective `call` begins, and nobody waits for it: it is put aside, for what destroys it would wait."""
    return Mutation(name, without, (file, call + end,
                                    "{ if (MUTANT) {\n  static std::vector<DeviceWork>& unseen = *new std::vector<DeviceWork>;\n  "
                                    f"unseen.push_back({call.removeprefix('return ')});\n  {then}\n}} else {call}{end} }}"))


# By the way of tests/accelerators/checked_ways_test.cpp that has them; "" is the test of one accelerator, which has a queue alone.
OF_WAYS = {
    "owners": [forgotten("owners_values_are_not_waited_for", "block() before a parameter that another rank sends is read",
                         "params/broadcast.cpp", "ranks.comm->broadcast(flat, root)")],
    "asked": [forgotten("whole_masters_are_not_waited_for", "block() before gathered masters are read", "params/values.cpp",
                        "range.ranks.comm->all_gather(mine, whole.narrow(0, bucket.offset, bucket.numel))"),
              forgotten("values_asked_for_are_not_waited_for", "wait() before a gathered value is read", "params/values.cpp",
                        "found.range->ranks.comm->all_reduce(whole.view(at::kByte))", ".wait();"),
              Mutation("sums_on_their_way_meet_loaded_ones", "the step's sums are at rest before a load reads others there",
                       ("engine/checkpoint/loading.cpp", "  if (!module_only_) impl_.restart_step();", "  if (!module_only_ && !MUTANT) impl_.restart_step();"),
                       ("engine/checkpoint/loading.cpp", "  read();\n", "  read();\n  if (!module_only_ && MUTANT) impl_.restart_step();\n"))],
    "late": [forgotten("late_gradients_are_not_waited_for", "block() before late sums are added", "grads/reducer_arrivals.cpp",
                       "range.ranks.comm->all_reduce(wire)"),
             forgotten("late_shards_are_not_waited_for", "block() before a shard of late sums is added",
                       "grads/reducer_arrivals.cpp", "range.ranks.comm->reduce_scatter(wire, own)")],
    "tied": [forgotten("tied_gradients_are_not_waited_for", "block() before summed gradients of a tie are used",
                       "engine/ties.cpp", "return ranks.all_reduce(gradient)", then="return;"),
             forgotten("tied_gradients_leave_too_early", "block() before a tie's sum goes back to the host", "engine/ties.cpp",
                       "ranks.all_reduce(there)")],
    "partitioned": [forgotten("kept_inputs_are_not_waited_for", "block() before the gathered input of a region is read",
                              "activation/input_store.cpp", "ranks_->all_gather(mine, whole)")],
    "collectives": [
        forgotten("a_plugins_sum_is_not_waited_for", "block() behind an all-reduce that a plugin asked for",
                  "update/group_collectives.cpp", "comm.all_reduce(into, op)"),
        forgotten("a_plugins_broadcast_is_not_waited_for", "behind a broadcast", "update/group_collectives.cpp",
                  "comm.broadcast(view(args.recv, count), args.root)"),
        forgotten("a_plugins_gather_is_not_waited_for", "behind an all-gather", "update/group_collectives.cpp",
                  "comm.all_gather(view(args.send, count), view(args.recv, ranks * count))"),
        forgotten("a_plugins_shards_are_not_waited_for", "behind a reduce-scatter", "update/group_collectives.cpp",
                  "comm.reduce_scatter(view(args.send, ranks * count), view(args.recv, count), op)"),
        forgotten("a_plugins_parts_are_not_waited_for", "behind an all-to-all", "update/group_collectives.cpp",
                  "comm.all_to_all(view(args.send, ranks * count), view(args.recv, ranks * count))"),
        Mutation("buffers_in_flight_are_not_held", "DeviceComm holds a collective's buffers until it is over",
                 ("device/device_comm.cpp", "  comm_->hold(std::move(*this));",
                  "  if (!MUTANT) return comm_->hold(std::move(*this));\n"
                  "  static std::vector<Work>& unseen = *new std::vector<Work>;\n"
                  "  unseen.push_back(std::move(work_));\n  tensors_.clear();"))],
    "": [Mutation("pieces_leave_before_they_are_computed", "a piece's copy to the host waits for its stream",
                  ("update/host_update.cpp", "  to_host_.wait_stream(stream);", "  if (!MUTANT) to_host_.wait_stream(stream);"))],
}
WAY_OF = {mutation.name: way for way, all_of_it in OF_WAYS.items() for mutation in all_of_it}

def run(program, body, accelerator, seed, mutant=None, way=None):
    """What both ranks print, and whether both end well."""
    port = mutations.free_port()
    processes = []
    for rank in range(2):
        variables = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(port), OMP_NUM_THREADS="1", GANNET_TEST_RANK_BODY=body,
                         ACCELERATOR=accelerator, SEED=str(seed))
        variables.pop("GANNET_MUTANT", None)
        variables.update({"WAY": way, "FOLDER": tempfile.gettempdir()} if way else {})
        if mutant:
            variables["GANNET_MUTANT"] = mutant
        processes.append(subprocess.Popen([program], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    lines, is_whole = [], True
    for process in processes:
        try:
            output = process.communicate(timeout=120)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0]
        lines += output.splitlines()
        is_whole = is_whole and process.returncode == 0
    return lines, is_whole


def figures(program, accelerator, seed, mutant=None):
    lines, is_whole = run(program, "trains_in_every_way", accelerator, seed, mutant)
    return [line for line in lines if line.startswith("figure: ")], is_whole


def report_of(build, mutant=None):
    """The first unordered use that the checked device reports, or None."""
    way = WAY_OF.get(mutant)
    if way == "":
        done = subprocess.run([os.path.join(build, "tests/accelerators_checked_test"), "--gtest_filter=*HostUpdate*"], text=True,
                              env=dict(os.environ, GANNET_MUTANT=mutant), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = done.stdout.splitlines()
    else:
        program, body = (WAYS_PROGRAM, "trains_in_a_rarer_way") if way else (PROGRAM, "trains_on_the_checked_device")
        lines, _ = run(os.path.join(build, program), body, "checked", 0, mutant, way)
    return next((line for line in lines if "nothing orders the two" in line), None)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*")
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--check", action="store_true")
    options.add_argument("--checked", action="store_true")
    options.add_argument("--build", default=str(ROOT / "build"), help="the build folder")
    given = options.parse_args()
    omissions = OMISSIONS + ([*OF_STREAMS, *(one for way in OF_WAYS.values() for one in way)] if given.checked or given.check else [])
    mutations.MUTATIONS[:] = omissions
    texts = mutations.mutated_files()  # ends with a sentence where a text is not found
    if given.check:
        return
    chosen = [one for one in omissions if not given.names or one.name in given.names]
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *texts], cwd=ROOT).returncode:
        sys.exit("the files to change have uncommitted changes: " + ", ".join(texts))
    originals = {file: (ROOT / file).read_text() for file in texts}
    build = ["cmake", "--build", given.build, "--target", "gannet_core", "accelerators_ranks_test", "accelerators_ways_test",
             "accelerators_checked_test"]
    rows = []
    try:
        for file, text in texts.items():
            (ROOT / file).write_text(text)
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        program = os.path.join(given.build, PROGRAM)
        if given.checked:
            reports = {}
            for name in ["nothing", *(one.name for one in chosen)]:
                reports[name] = report_of(given.build, None if name == "nothing" else name)
                print(f"{name}: {reports[name]}", flush=True)
            if reports.pop("nothing") or not all(reports.values()):
                sys.exit("not every omission was reported, or something is reported without one")
            return
        expected = figures(program, "cpu", 0)
        assert expected[1], "the CPU's ranks failed"
        for one in [None, *chosen]:
            red, differing = 0, set()
            for seed in range(1, given.seeds + 1):
                lines, is_whole = figures(program, "fake", seed, one.name if one else None)
                wrong = [line for line, right in zip(lines, expected[0]) if line != right] if is_whole else ["ended: ended"]
                red += bool(wrong)
                differing.update(line.split()[1] for line in wrong)
            rows.append((one.name if one else "nothing", red, " ".join(sorted(differing))))
            print(f"{rows[-1][0]}: {red} of {given.seeds} seeds differ, in: {rows[-1][2]}", flush=True)
    finally:
        for file, text in originals.items():
            (ROOT / file).write_text(text)
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    if not given.names:
        head = ("# What is left out (omissions.py), under how many seeds the fake device's figures then differ from the CPU's, and in\n"
                "# which ways of training. Written by omissions.py.\n")
        TABLE.write_text(head + "".join(f"{name}: {red} of {given.seeds}: {where}\n".replace(": \n", "\n") for name, red, where in rows))
    if rows[0][1] or any(red < given.seeds for _, red, _ in rows[1:]):
        sys.exit("not every omission was seen under every seed, or figures differ without one")


if __name__ == "__main__":
    main()
