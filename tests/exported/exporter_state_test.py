"""gannet_export: state between calls, hooks, shared memory, writes into weights. Skipped where Python has no torch of 2.11 or newer."""
import json
import pathlib
import unittest

from exporter_case import BATCH, ExporterCase, Small, torch  # skips this file where there is no torch

from safetensors.torch import load_file


class Running(Small):
    """A mean over calls, in a buffer; `update` is how forward writes it."""

    def __init__(self, update, persistent=True):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3), persistent=persistent)
        self.update = update

    def forward(self, x):
        self.update(self, 0.9 * self.mean + 0.1 * x.mean(0).detach())
        return self.linear(x - self.mean).pow(2).mean()


def assign(model, value):
    model.mean = value


class State(ExporterCase):
    def test_a_buffer_that_forward_assigns_is_exported_with_its_update(self):
        graphs = []
        for update in (assign, lambda model, value: model.mean.copy_(value)):
            model = torch.nn.Sequential(Running(update))  # nested: torch.export loses the assignment
            model.forward = lambda x, inner=model[0]: inner(x)
            buffer = model[0].mean
            self.export(model)
            self.assertIs(model[0].mean, buffer)
            self.assertTrue(torch.equal(buffer, torch.zeros(3)))
            graphs.append(self.operators())
        self.assertEqual([ops.count("aten.copy_.default") for ops in graphs], [1, 1])
        probe = json.loads((pathlib.Path(self.out) / "probe.json").read_text())
        self.assertGreater(probe["results"]["train.fp32"]["buffer_norms"]["0.mean"], 0)

    def test_a_buffer_that_changes_its_shape_is_refused(self):
        class Growing(Running):
            def forward(self, x):
                loss = self.linear(x - self.mean[-3:]).pow(2).mean()
                self.mean = torch.cat([self.mean, self.mean])
                return loss

        self.assertIn("forward assigns float32 [6] to the buffer 'mean', which is float32 [3]", self.refused(Growing(None)))

    def test_an_attribute_that_changes_at_each_call_is_refused(self):
        class Counted(Small):
            def __init__(self, change):
                super().__init__()
                self.change, self.calls, self.seen, self.last = change, 0, [], torch.zeros(())
                self.phase = {"angle": torch.ones((), dtype=torch.complex64)}

            def forward(self, x):
                loss = self.linear(x).mean()
                self.change(self, loss.detach())
                return loss * min(2, self.calls) + len(self.seen) + self.last

        def count(model, _):
            model.calls += 1

        def append(model, _):
            model.seen.append(1)

        def average(model, loss):
            model.last = 0.9 * model.last + loss

        def turn(model, _):
            model.phase = {"angle": model.phase["angle"] * 1j}

        for change, name in ((count, "calls"), (append, "seen"), (average, "last"), (turn, "phase")):
            text = self.refused(torch.nn.DataParallel(Counted(change)))
            self.assertIn(f"forward changes the attribute 'module.{name}' at each call (train.fp32)", text)
            self.assertIn("register_buffer", text)

    def test_an_attribute_that_is_stored_for_a_look_at_it_is_no_state(self):
        class Watched(Small):
            mask = None

            def forward(self, x):
                if self.mask is None:
                    self.mask = torch.ones(4)
                self.hidden = self.linear(x) * self.mask
                self.shape = x.shape
                return self.hidden.mean()

        model = Watched()
        self.export(model, dtypes=["fp32", "bf16"])
        self.assertFalse(hasattr(model, "hidden"))

    def test_a_write_into_a_weight_is_refused_and_undone(self):
        class Clamped(Small):
            def forward(self, x):
                with torch.no_grad():
                    self.linear.weight.clamp_(-0.01, 0.01)
                return self.linear(x).mean()

        class Data(Small):
            def forward(self, x):
                self.linear.weight.data *= 0.5
                return self.linear(x).mean()

        class Embedded(Small):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(3, 3, max_norm=0.1)

            def forward(self, x):
                return self.linear(x + self.words(x.argmax(-1))).mean()

        for model, name in ((Clamped(), "linear.weight"), (Data(), "linear.weight"), (Embedded(), "words.weight")):
            before = model.get_parameter(name).detach().clone()
            self.assertIn(f"forward writes into the parameter '{name}'", self.refused(model))
            self.assertTrue(torch.equal(model.get_parameter(name), before))

    def test_a_write_into_a_buffer_outside_of_the_state_dict_is_refused(self):
        model = Running(lambda model, value: model.mean.copy_(value), persistent=False)
        text = self.refused(model)
        self.assertIn("forward writes into the buffer outside of the state dict 'mean'", text)
        self.assertIn("persistent=True", text)
        self.assertTrue(torch.equal(model.mean, torch.zeros(3)))

    def test_a_buffer_that_forward_adds_is_a_constant_or_refused(self):
        class Adding(Small):
            def __init__(self, persistent, grows):
                super().__init__()
                self.register_buffer("mask", None, persistent=persistent)
                self.grows = grows

            def forward(self, x):
                self.mask = torch.ones(4) if self.mask is None else self.mask + self.grows
                return (self.linear(x) * self.mask).mean()

        self.assertIn("forward adds the buffer 'mask' to the state dict", self.refused(Adding(True, 0)))
        self.assertIn("forward writes into the buffer outside of the state dict 'mask'", self.refused(Adding(False, 1)))
        model = Adding(False, 0)
        self.export(model)
        self.assertIsNone(model.mask)

    def test_a_write_into_the_batch_leaves_the_example_as_it_is(self):
        batch = {"x": BATCH["x"].clone()}

        class Doubled(Small):
            def forward(self, x):
                return self.linear(x.mul_(2)).mean()

        self.export(Doubled(), batch)
        self.assertTrue(torch.equal(batch["x"], BATCH["x"]))

    def test_a_hook_of_a_parameter_is_refused(self):
        for register in ("register_hook", "register_post_accumulate_grad_hook"):
            model = Small()
            getattr(model.linear.weight, register)(lambda grad: None)
            self.assertIn("parameter 'linear.weight' has a hook", self.refused(model))

    def test_parameters_that_share_memory_are_refused_and_parts_of_one_tensor_are_not(self):
        class Two(Small):
            def __init__(self, one, other):
                super().__init__()
                self.one, self.other = torch.nn.Parameter(one), torch.nn.Parameter(other)

            def forward(self, x):
                return (self.linear(x) * self.one.sum() * self.other.sum()).mean()

        whole = torch.randn(4, 6)
        for one, other in ((whole, whole), (whole, whole.t()), (whole[:2], whole[1:]), (whole[:, :3], whole[:, 2:])):
            text = self.refused(Two(one, other))
            self.assertIn("'other' shares memory with 'one'", text)
            self.assertIn("head.weight = words.weight", text)
        for one, other in ((whole[:2], whole[2:]), (whole[:, :3], whole[:, 3:])):
            self.export(Two(one, other), modes=["train"])
            self.assertTrue(torch.equal(load_file(self.out + "/model.safetensors")["other"], other))


if __name__ == "__main__":
    unittest.main()
