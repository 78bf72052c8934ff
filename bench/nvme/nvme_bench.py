"""Our offload to a drive beside fio: alternating rounds of `gannet bench nvme` and of fio's two asynchronous engines.

    python3 bench/nvme/nvme_bench.py FOLDER [--gannet build/bin/gannet] [--rounds 9] [--size 2G] [--block_size 1M]
        [--queue_depth 8]

Same folder, file size, block size and depth, O_DIRECT, blocks that were written before; no checksums on either side. Every round
is printed; a ratio is ours over the faster fio engine of that round. The last lines are JSON, the median of the ratios last.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
engines = ("libaio", "io_uring")
bars = {"ratio": 0.97, "cpu_ms_per_gib": 4}


def ours(args, *more):
    command = [args.gannet, "bench", "nvme", args.folder, "--size", args.size, "--block_size", args.block_size, "--queue_depth", args.queue_depth, "--json", *more]
    return json.loads(subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout)


def fio(args, engine, direction):
    """GB/s of one pass over the file, which exists. As fast as fio goes: no bytes changed between writes, buffers registered with io_uring."""
    command = ["fio", "--name=peer", f"--filename={args.folder}/fio.bin", f"--size={args.size}", f"--bs={args.block_size}", f"--iodepth={args.queue_depth}",
               "--direct=1", f"--ioengine={engine}", f"--rw={direction}", "--overwrite=1", "--invalidate=0", "--scramble_buffers=0",
               *(["--fixedbufs"] if engine == "io_uring" else []), "--output-format=json"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    job = json.loads(text[text.index("{"):])["jobs"][0]
    cpu_ms = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"]
    return {"gb_s": job[direction]["bw_bytes"] / 1e9, "cpu_ms_per_gib": cpu_ms / (job[direction]["io_bytes"] / 2**30)}


def one_round(args, index):
    """The order turns from round to round, so that none is always first."""
    figures = {}

    def run_ours():
        figures["ours"] = ours(args, "--no-checksum")

    def run_fio(engine):
        figures[engine] = {direction: fio(args, engine, direction) for direction in ("write", "read")}

    order = [run_ours, *(lambda engine=engine: run_fio(engine) for engine in engines)]
    for run in order[index % 3:] + order[:index % 3]:
        run()
    figures["checked"] = ours(args)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gannet", type=pathlib.Path, default=root / "build/bin/gannet")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--size", default="2G")
    parser.add_argument("--block_size", default="1M")
    parser.add_argument("--queue_depth", type=int, default=8)
    args = parser.parse_args()
    args.folder = args.folder.resolve()

    rounds = []
    try:
        for index in range(args.rounds + 1):
            figures = one_round(args, index)
            label = "warm-up" if index == 0 else f"round {index}"
            for direction in ("write", "read"):
                print(label, direction, f"ours {figures['ours'][f'{direction}_gb_s']:.3f} GB/s", f"checked {figures['checked'][f'{direction}_gb_s']:.3f}",
                      *(f"fio-{engine} {figures[engine][direction]['gb_s']:.3f}" for engine in engines), flush=True)
            if index:
                rounds.append(figures)
    finally:
        (args.folder / "fio.bin").unlink(missing_ok=True)

    median = lambda values: round(statistics.median(values), 3)
    for direction in ("write", "read"):
        best = [max(one[engine][direction]["gb_s"] for engine in engines) for one in rounds]
        key = f"{direction}_cpu_ms_per_gib"
        print(json.dumps({
            "figure": f"nvme_{direction}", "block_size": args.block_size, "queue_depth": args.queue_depth, "size": args.size, "rounds": len(rounds),
            "ours_gb_s": median(one["ours"][f"{direction}_gb_s"] for one in rounds), "checked_gb_s": median(one["checked"][f"{direction}_gb_s"] for one in rounds),
            **{f"fio_{engine}_gb_s": median(one[engine][direction]["gb_s"] for one in rounds) for engine in engines},
            "ours_cpu_ms_per_gib": median(one["ours"][key] for one in rounds), "bar_cpu_ms_per_gib": bars["cpu_ms_per_gib"],
            "checked_cpu_ms_per_gib": median(one["checked"][key] for one in rounds),
            **{f"fio_{engine}_cpu_ms_per_gib": median(one[engine][direction]["cpu_ms_per_gib"] for one in rounds) for engine in engines},
            "bar": bars["ratio"], "ratio": median(one["ours"][f"{direction}_gb_s"] / fast for one, fast in zip(rounds, best))}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
