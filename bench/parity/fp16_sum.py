"""The averaged fp16 gradient of DeepSpeed's ZeRO beside Gannet's and beside fp64, and the largest static loss scale that trains.

    python3 bench/parity/fp16_sum.py --peer-python VENV/bin/python [--build build] [--ranks 4 3]

VENV has PyTorch 2.11.0 and DeepSpeed 0.19.6. A model of one parameter whose gradient is known: a part that all ranks share and
one of each rank's own, the same numbers on both sides (Gannet's program is the body fp16_sum of tests/guest/sums_test.cpp).
`rms_error` is the 2-norm of the error over that of the exact mean, `largest_error` the largest error of an element over the
root mean square of the exact mean; both at a scale of 1024. DeepSpeed refuses fp16 on processors without fp16 arithmetic
("Type fp16 is not supported on your device."), though PyTorch computes it there: the question is answered for it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

NUMEL, ERROR_SCALE = 100_000, 1024


def peer():
    """One rank of DeepSpeed's side, under torchrun."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch
    from deepspeed.utils import safe_get_full_grad

    type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda self: True
    deepspeed.init_distributed("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def gradient_of(rank):
        torch.manual_seed(0)
        shared = torch.randn(NUMEL) * 8
        torch.manual_seed(1 + rank)
        return (shared + torch.randn(NUMEL) * 2).half().float()

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(NUMEL))

        def forward(self, x):
            return (self.w.float() * x).sum()

    mine = gradient_of(rank)
    exact = sum(gradient_of(r).double() for r in range(ranks)) / ranks

    def step(stage, scale):
        """The averaged gradient that the optimizer would see, and whether it stepped."""
        model = One()
        engine, _, _, _ = deepspeed.initialize(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
            config={"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True, "loss_scale": scale}, "gradient_clipping": 0.0,
                    "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True})
        # The fp32 input would be cast to fp16, and is exact in it.
        engine.backward(engine(mine))
        gradient = safe_get_full_grad(model.w).double() / scale
        engine.step()
        applied = torch.tensor(float(engine.was_step_applied()))
        torch.distributed.all_reduce(applied, op=torch.distributed.ReduceOp.MIN)
        return gradient, bool(applied)

    for stage in (1, 2):
        error = step(stage, ERROR_SCALE)[0] - exact
        trains, fails = 1, 1 << 16
        while fails - trains > 1:
            middle = (trains + fails) // 2
            if step(stage, middle)[1]:
                trains = middle
            else:
                fails = middle
        if rank == 0:
            print(json.dumps({
                "program": "deepspeed", "ranks": ranks, "stage": stage, "rms_error": float(error.norm() / exact.norm()),
                "largest_error": float(error.abs().max() / exact.square().mean().sqrt()), "largest_static_scale": trains}), flush=True)


def lines_of(command, **environment):
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return [json.loads(line[line.index('{"program"'):]) for line in done.stdout.splitlines() if '{"program"' in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 3])
    parser.add_argument("--rank-of-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of_peer:
        return peer()
    print("| ranks | stage | program | rms error | largest error | largest static scale |\n|---|---|---|---|---|---|")
    for ranks in args.ranks:
        theirs = lines_of([args.peer_python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), __file__,
                           "--rank-of-peer"], OMP_NUM_THREADS="1")
        ours = lines_of([args.build / "bin/gannet", "run", "--num_procs", str(ranks), args.build / "tests/guest_ranks_test"],
                        GANNET_TEST_RANK_BODY="fp16_sum")
        for row in sorted(ours + theirs, key=lambda row: (row["stage"], row["program"])):
            print(f"| {row['ranks']} | {row['stage']} | {row['program']} | {row['rms_error']:.2e} | {row['largest_error']:.2e} | "
                  f"{row['largest_static_scale']} |", flush=True)


if __name__ == "__main__":
    main()
