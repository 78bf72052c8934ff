"""Exported files, read by Python's own zipfile and pickle as torch.load reads them: without PyTorch and without DeepSpeed, whose
classes are stand-ins here.
"""
import collections
import io
import os
import pathlib
import pickle
import subprocess
import tempfile
import unittest
import zipfile

GANNET = os.environ["GANNET"]
FIXTURES = pathlib.Path(__file__).resolve().parent / "deepspeed"
SIZES = {"FloatStorage": 4, "BFloat16Storage": 2, "HalfStorage": 2, "LongStorage": 8}
Tensor = collections.namedtuple("Tensor", "type shape values")


class Attributes:
    """An object that pickle makes without its constructor."""


class DynamicLossScaler(Attributes):
    pass


class LossScaler(Attributes):
    pass


class FragmentAddress(Attributes):
    pass


class Unpickler(pickle.Unpickler):
    CLASSES = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("__builtin__", "set"): set,
        ("torch", "Size"): tuple,
        ("torch", "float16"): "torch.float16",
        ("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"): DynamicLossScaler,
        ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"): LossScaler,
        ("deepspeed.utils.tensor_fragment", "fragment_address"): FragmentAddress,
        ("deepspeed.runtime.zero.config", "ZeroStageEnum"): int,
    }

    def __init__(self, archive):
        self.archive, self.used = archive, set()
        self.root = archive.namelist()[0].split("/")[0]  # "archive" in our files
        super().__init__(io.BytesIO(archive.read(f"{self.root}/data.pkl")))

    def find_class(self, module, name):
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self.tensor
        if module == "torch" and name in SIZES:
            return name
        return self.CLASSES[module, name]

    def persistent_load(self, identity):
        kind, storage, key, device, numel = identity
        assert (kind, device) == ("storage", "cpu"), identity
        content = self.archive.read(f"{self.root}/data/{key}")
        assert len(content) == numel * SIZES[storage], f"storage {key} has {len(content)} bytes"
        self.used.add(f"{self.root}/data/{key}")
        return storage, content

    def tensor(self, storage, offset, shape, strides, requires_grad, hooks):
        count = 1
        for size, stride in zip(reversed(shape), reversed(strides)):
            assert stride == count, "not contiguous"
            count *= max(size, 1)
        width = SIZES[storage[0]]
        values = storage[1][offset * width:(offset + count) * width] if 0 not in shape else b""
        return Tensor(storage[0], shape, values)


def load(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, path
        unpickler = Unpickler(archive)
        result = unpickler.load()
        stored = {name for name in archive.namelist() if name.startswith(f"{unpickler.root}/data/")}
        assert stored == unpickler.used, f"{path}: storages that nothing names: {stored - unpickler.used}"
        assert archive.read(f"{unpickler.root}/byteorder") == b"little"
    return result


class Exports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def exported(self, fixture, *options):
        for words in (["import", FIXTURES / fixture, self.folder / "in"], ["export", self.folder / "in", self.folder / "out", *options]):
            done = subprocess.run([GANNET, "checkpoint", *map(str, words)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / "out"

    def test_partitions_have_the_elements_of_the_groups_in_order(self):
        out = self.exported("s1-fp16-r1", "--format", "deepspeed", "--stage", "2", "--ranks", "3") / "step4"
        model = load(out / "mp_rank_00_model_states.pt")
        states = [load(out / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")["optimizer_state_dict"] for rank in range(3)]
        self.assertEqual(model["module"]["head.weight"], model["module"]["embed.weight"])
        self.assertEqual({tensor.type for name, tensor in model["module"].items() if name != "scale"}, {"HalfStorage"})
        self.assertIsInstance(states[0]["loss_scaler"], DynamicLossScaler)
        self.assertEqual(vars(states[0]["loss_scaler"])["cur_scale"], 131072.0)
        self.assertEqual((model["global_steps"], model["skipped_steps"], model["lr_scheduler"]["last_batch_iteration"]), (8, 4, 3))
        self.assertEqual((model["dp_world_size"], model["ds_version"], model["sparse_tensor_module_names"]), (3, "0.19.6", set()))
        original = load(FIXTURES / "s1-fp16-r1/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt")["optimizer_state_dict"]
        for group, shapes in enumerate(model["param_shapes"]):
            whole = original["single_partition_of_fp32_groups"][group].values
            part = states[0]["base_optimizer_state"]["state"][group]["exp_avg"].shape[0]
            self.assertEqual(part % 2, 0)
            self.assertEqual(b"".join(rank["single_partition_of_fp32_groups"][group].values for rank in states), whole)
            for moment in ("exp_avg", "exp_avg_sq"):
                joined = b"".join(rank["base_optimizer_state"]["state"][group][moment].values for rank in states)
                kept = original["base_optimizer_state"]["state"][group][moment].values
                self.assertEqual(joined.ljust(len(kept), b"\0")[:len(whole)], kept[:len(whole)])
            at = 0
            for name, shape in shapes.items():
                numel = 1
                for size in shape:
                    numel *= size
                for rank, state in enumerate(states):
                    begin, end = max(at, rank * part), min(at + numel, rank * part + part)
                    address = state["param_slice_mappings"][group].get(name)
                    self.assertEqual(vars(address) if address else None,
                                     {"numel": end - begin, "start": begin - rank * part} if begin < end else None)
                at += numel

    def test_a_universal_checkpoint_has_a_folder_for_each_parameter(self):
        out = self.exported("s3-bf16-r2", "--format", "universal") / "step4_universal"
        state = load(out / "zero/optimizer_state.pt")
        # Stages 1 and 2 read the first, and stage 3 the second.
        self.assertEqual(state["param_groups"], state["optimizer_state_dict"]["param_groups"])
        self.assertEqual(state["optimizer_state_dict"]["state"][0]["step"], 4)
        shapes = {name: shape for group in load(out / "mp_rank_00_model_states.pt")["param_shapes"] for name, shape in group.items()}
        self.assertEqual({path.name for path in (out / "zero").iterdir() if path.is_dir()}, set(shapes))
        for name, shape in shapes.items():
            self.assertEqual(load(out / f"zero/{name}/step.pt"), 4)
            for kind in ("fp32", "exp_avg", "exp_avg_sq"):
                content = load(out / f"zero/{name}/{kind}.pt")
                self.assertEqual((content["param"].type, content["param"].shape, content["cat_dim"]), ("FloatStorage", shape, 0))
        for tensor in load(out / "zero_pp_rank_0_mp_rank_00_model_states.pt")["module"].values():
            self.assertIn(tensor.shape, ((0,), (3,)))  # placeholders, and the buffer


if __name__ == "__main__":
    unittest.main()
