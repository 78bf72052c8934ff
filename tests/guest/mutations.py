#!/usr/bin/env python3
"""Breaks the engine on purpose, and writes down which rows of the table of habits see it (seen_red.txt).

    tests/guest/mutations.py                              every mutation, every row: about 25 minutes on two cores
    tests/guest/mutations.py audit_is_off scale_is_unmarked     these mutations; the others' results stay in the file
    tests/guest/mutations.py --rows my_new_row            for the author of a row: it alone under every mutation
    tests/guest/mutations.py --check                      are all texts still where the table says? Builds nothing
    tests/guest/mutations.py --build "ninja -C out gannet_core" --program out/tests/guest_test     another build folder

Every mutation takes one protection away: `old`, a text that occurs once in `file`, becomes `new`. MUTANT in `new` is true while
the mutation is awake. All of them are built at once, asleep, and GANNET_MUTANT in the environment wakes one: there is one build
to make them and one to take them out again. The files must have no uncommitted changes, and are restored however this ends
(but for SIGKILL: git checkout core).

The rows run on one rank (stages 0 and 2, also offloaded; fp64, bf16, fp16), then those that saw nothing on two (stages 0, 3 and
3s, fp32). A row is red where it has a third outcome, and where its process crashed, hung or ended in it; behind a red row
the processes start again, so that no row is red for another's sake. With every mutation asleep all rows must be green.
A row that nothing turns red is marked `never`; write the reason behind it, in parentheses, and it stays there.
"""
import argparse
import os
import pathlib
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "tests/guest/seen_red.txt"
QUIET_S = 25  # a row that says nothing for so long hangs
SETTINGS = [  # ranks, stages, dtypes
    (1, "0 0o 2o", "fp64 bf16 fp16"),
    (2, "0 3 3s", "fp32"),
]
HEAD = """\
# Which mutations of the engine (mutations.py) turned each row of the table of habits red. Written by mutations.py; the test
# Guest.EveryHabitWasSeenRedOrIsMarkedAsNever holds it against the rows. Reasons in parentheses are written by hand.
"""


class Mutation:
    def __init__(self, name, without, *edits):
        self.name, self.without = name, without
        self.edits = [("core/" + (file if "/" in file else "engine/" + file), old, new) for file, old, new in edits]


MUTATIONS = [
    # The audit: what the program did to parameters.
    Mutation("audit_is_off", "the look at every parameter before forward, step and save",
             ("module_audit.cpp", "  std::vector<ParameterChange> changes;", "  if (MUTANT) return {};\n  std::vector<ParameterChange> changes;")),
    Mutation("step_does_not_look", "the audit at the beginning of a step",
             ("boundary.cpp", "const char* call) {\n  impl.audit();",
              "const char* call) {\n  if (!MUTANT) impl.audit();")),
    Mutation("forward_does_not_look", "the audit at the beginning of forward",
             ("forward.cpp", "if (trains) impl.audit();", "if (trains && !MUTANT) impl.audit();")),
    Mutation("version_counters_are_not_read", "writes in place are found by the version counter",
             ("module_audit.cpp", "if (is_replaced || version_of(parameter.tensor) != parameter.left.version ||",
              "if (is_replaced || (!MUTANT && version_of(parameter.tensor) != parameter.left.version) ||")),
    Mutation("samples_are_not_compared", "writes that advance no version are found by sampled elements",
             ("module_audit.cpp", "if (!tensor.is_cpu() || numel == 0) return 0;",
              "if (!tensor.is_cpu() || numel == 0 || MUTANT) return 0;")),
    Mutation("writes_in_place_are_not_seen", "both of them",
             ("tensor/version.h", "return tensor.is_inference() ? 0 :", "return tensor.is_inference() || MUTANT ? 0 :"),
             ("module_audit.cpp", "const char* const data = static_cast<const char*>(tensor.const_data_ptr());",
              "if (MUTANT) return 0;\n  const char* const data = static_cast<const char*>(tensor.const_data_ptr());")),
    Mutation("new_memory_is_not_seen", "set_data, torch::load and to() are found by the storage's address",
             ("module_audit.cpp", "return tensor->unsafe_storage().unsafeGetStorageImpl() == left.storage &&",
              "if (MUTANT) return true;\n  return tensor->unsafe_storage().unsafeGetStorageImpl() == left.storage &&")),
    Mutation("new_memory_is_not_reclaimed", "the parameter gets the engine's memory back",
             ("module_audit.cpp", "  reclaim();\n  if (!changes.empty()) {", "  if (!MUTANT) reclaim();\n  if (!changes.empty()) {")),
    Mutation("masters_are_not_written", "new values go into the fp32 master",
             ("params/values.cpp", "    if (range.has_master_copy()) {\n      if (is_in_full)",
              "    if (range.has_master_copy() && !MUTANT) {\n      if (is_in_full)")),
    Mutation("masters_lose_their_digits", "a 16-bit write leaves the master of an element alone that it did not change",
             ("params/values.cpp", "const at::Tensor wide = written.to(range.master_dtype);",
              "const at::Tensor wide = written.to(range.master_dtype);\n  if (MUTANT) return wide;")),
    Mutation("displaced_masters_are_lost", "values that a guard swaps out and another puts back get their masters back",
             ("params/values.cpp", "const bool has_displaced = !", "const bool has_displaced = !MUTANT && !")),
    Mutation("new_memory_is_always_in_full", "16-bit values in new memory have no more digits than the parameter",
             ("module_audit.cpp", "value.scalar_type() != range.dtype);", "MUTANT || value.scalar_type() != range.dtype);")),
    Mutation("shards_are_not_written", "new values go into this rank's shard of a parameter at stage 3",
             ("params/values.cpp", "if (range.is_gathered_on_demand_) range.set_param(place_of(part), mine.to(range.dtype));",
              "if (range.is_gathered_on_demand_ && !MUTANT) range.set_param(place_of(part), mine.to(range.dtype));")),
    Mutation("flat_buffers_are_not_written", "values in new memory go into the parameter in use",
             ("params/values.cpp", "parameter.persistent.narrow(0, 0, parameter.numel).copy_(flat);",
              "if (!MUTANT) parameter.persistent.narrow(0, 0, parameter.numel).copy_(flat);"),
             ("params/values.cpp", "range.param.here().narrow(0, parameter.offset, parameter.numel).copy_(flat);",
              "if (!MUTANT) range.param.here().narrow(0, parameter.offset, parameter.numel).copy_(flat);")),
    Mutation("shapes_are_not_checked", "a value of another shape is refused",
             ("module_audit.cpp", "if (value.sizes() != at::IntArrayRef(parameter.shape))",
              "if (!MUTANT && value.sizes() != at::IntArrayRef(parameter.shape))")),
    Mutation("files_have_the_models_dtype", "fp32 weights that torch::load puts under a 16-bit parameter are read as fp32",
             ("module_audit.cpp", "if (version_of(parameter.tensor) == parameter.left.version) return",
              "if (MUTANT || version_of(parameter.tensor) == parameter.left.version) return")),
    Mutation("frozen_files_are_misread", "a file of fp32 weights is read as fp32 into a frozen 16-bit parameter",
             ("module_audit.cpp", "frozen.has_storage() && frozen.storage().nbytes() != known[identity]->bytes",
              "frozen.has_storage() && frozen.storage().nbytes() != known[identity]->bytes && !MUTANT")),

    # Who trains what.
    Mutation("newcomers_do_not_join", "thawed and added parameters are found",
             ("module_audit.cpp", "ModuleAudit::new_parameters(bool is_converted) {", "ModuleAudit::new_parameters(bool is_converted) {\n  if (MUTANT) return {};")),
    Mutation("replaced_layers_are_not_seen", "another tensor under a trained parameter's name is refused",
             ("module_audit.cpp", "same_name != by_name.end() && same_name->second != identity &&",
              "!MUTANT && same_name != by_name.end() && same_name->second != identity &&")),
    Mutation("groups_do_not_bind", "with explicit groups, a parameter of none of them does not join",
             ("module_audit.cpp", "groups_are_given_ && !given_group_.contains(identity)) {",
              "groups_are_given_ && !MUTANT && !given_group_.contains(identity)) {")),
    Mutation("frozen_parameters_move", "a parameter that requires no gradient is not updated",
             ("update/updater.cpp", "lags.push_back(is_skipped(range, p, reducer) ?",
              "lags.push_back(is_skipped(range, p, reducer) && !MUTANT ?"),
             ("update/user_optimizer.cpp", "if (is_skipped(range, p, reducer)) continue;",
              "if (is_skipped(range, p, reducer) && !MUTANT) continue;")),
    Mutation("a_gradient_before_freezing_is_lost", "a parameter frozen behind its gradient has that update",
             ("grads/reducer_arrivals.cpp", "return slot && slot->has_come;",
              "return !MUTANT && slot && slot->has_come;")),
    Mutation("joined_values_change", "a parameter that joins keeps its values",
             ("join.cpp", "    impl.store.add(group, parameter);",
              "    impl.store.add(group, parameter);\n    if (MUTANT) tensor.detach().mul_(1.5);")),
    Mutation("moved_parameters_stay_frozen_too", "a frozen shard that was thawed leaves its old place",
             ("params/store.cpp", "if (one.tensor.is_same(parameter)) one.is_moved = true;",
              "if (one.tensor.is_same(parameter)) one.is_moved = !MUTANT;")),
    Mutation("spare_buffers_stay_small", "buffers in flight are made larger for a larger parameter that joins",
             ("grads/reducer.cpp", "    spare_.clear();\n", "    if (!MUTANT) spare_.clear();\n")),
    Mutation("parameters_have_many_owners", "an engine on a part of another engine's module is refused",
             ("ownership.cpp", "if (&other != record_.get() && !takes_all)",
              "if (&other != record_.get() && !takes_all && !MUTANT)")),
    Mutation("gradients_are_lost_to_a_second_engine", "a second engine within a step of the first is refused",
             ("ownership.cpp", "if (&other != record_.get() && other.holds_gradients())",
              "if (&other != record_.get() && !MUTANT && other.holds_gradients())")),
    Mutation("an_engine_without_parameters_works", "an engine whose module another one has taken says so",
             ("gate.cpp", "return impl.ownership && !impl.ownership->lost().empty();",
              "return impl.ownership && !impl.ownership->lost().empty() && !MUTANT;")),
    Mutation("a_dying_engine_takes_all_hooks", "an engine takes its own hooks with it, and no other's; lost ones come back",
             ("grads/reducer.cpp", "if (torch::autograd::impl::post_acc_grad_hooks(tensor).get() == slot.hook)",
              "if (MUTANT || torch::autograd::impl::post_acc_grad_hooks(tensor).get() == slot.hook)"),
             ("grads/reducer.cpp", "    if (!hook)\n      set_hook(i);",
              "    if (!hook && MUTANT) continue;\n    if (!hook)\n      set_hook(i);")),
    Mutation("hooks_are_not_restored", "a hook that was taken away or replaced is found",
             ("grads/reducer.cpp", "if (hook.get() == slots_[i].hook) continue;",
              "if (MUTANT || hook.get() == slots_[i].hook) continue;")),
    Mutation("shared_memory_is_not_seen", "two tensors in one memory are refused",
             ("shared_memory.cpp", "  std::vector<Extent> extents;", "  if (MUTANT) return;\n  std::vector<Extent> extents;")),
    Mutation("memory_may_be_shared_later", "a parameter that is given another one's memory is refused",
             ("shared_memory.cpp", "  const auto refuse = []", "  if (MUTANT) return;\n  const auto refuse = []")),
    Mutation("exchanged_memory_is_read_in_place", "values of two parameters that were exchanged are copied first",
             ("module_audit.cpp", "if (is_ours) tensor.set_data(", "if (is_ours && !MUTANT) tensor.set_data(")),
    Mutation("first_gradients_are_lost", "a layer that forward made takes part in that step",
             ("join.cpp", "if (any) impl.reducer->bring(", "if (any && !MUTANT) impl.reducer->bring(")),
    Mutation("first_gradients_are_not_averaged", "and its gradient is averaged over the ranks",
             ("grads/reducer_marks.cpp", "if (ranges_[range].ranks.comm->size() > 1 && (", "if (!MUTANT && ranges_[range].ranks.comm->size() > 1 && (")),
    Mutation("first_layers_may_differ", "a layer that forward made has the same values on every rank",
             ("join.cpp", "      if (lines[rank][p].substr(2) !=", "      if (!MUTANT && lines[rank][p].substr(2) !=")),
    Mutation("newcomers_are_not_looked_for", "gradients of parameters that join later are taken from `.grad`",
             ("module_audit.cpp", "  if (is_module_as_recorded()) return {};\n  std::unordered_set",
              "  if (MUTANT || is_module_as_recorded()) return {};\n  std::unordered_set")),
    Mutation("newcomers_are_not_forgotten", "a step that begins again has none of their gradients",
             ("backward.cpp", "  impl.newcomers.forget();\n", "  if (!MUTANT) impl.newcomers.forget();\n")),
    Mutation("cleared_newcomers_stay", "what the program clears of them is dropped",
             ("newcomers.cpp", "  if (!one.shown.defined()) return;", "  if (MUTANT || !one.shown.defined()) return;")),
    Mutation("old_gradients_are_lost_to_a_joining", "a `.grad` from before the engine, or from before it joined, is told of",
             ("params/place.cpp", "      zero::release_ownership(parameter.tensor.storage()",
              "      if (MUTANT) parameter.tensor.mutable_grad().reset();\n      zero::release_ownership(parameter.tensor.storage()")),
    Mutation("cleared_gradients_stay", "zero_grad() of the module within a step drops what was gathered",
             ("grads/reducer_marks.cpp", "    clear(i, /*to_none=*/!grad.defined());", "    if (!MUTANT) clear(i, /*to_none=*/!grad.defined());")),
    Mutation("cleared_gradients_are_updates", "a gradient that is cleared behind the last backward is no update",
             ("grads/reducer_marks.cpp", "slot.is_cleared = to_none &&", "slot.is_cleared = !MUTANT && to_none &&")),
    Mutation("gradients_are_not_marked", "`.grad` shows that the engine has the gradient",
             ("grads/reducer_marks.cpp", "if (slot.has_come) mark_gradient(slot);", "if (!MUTANT && slot.has_come) mark_gradient(slot);")),
    Mutation("tied_parameters_are_two", "a parameter under two names is trained once",
             ("collect.cpp", "group_of.emplace(identity, index); !is_new) {",
              "group_of.emplace(identity, index); !is_new && !MUTANT) {")),
    Mutation("handles_of_a_dead_engine_work", "a handle that outlives its engine says so",
             ("handles.cpp", "    if (!held_)\n      throw", "    if (!held_ && !MUTANT)\n      throw")),

    # Whose backward it is.
    Mutation("any_backward_is_ours", "gradients of another backward stay in `.grad`",
             ("grads/reducer.cpp", "if (reducer_->is_backward_of_engine())", "if (MUTANT || reducer_->is_backward_of_engine())")),
    Mutation("no_backward_is_ours", "gradients of the engine's backward come into its buffers (any training at all)",
             ("grads/reducer.cpp", "  if (!backward.is_marked) marked_.emplace",
              "  if (!backward.is_marked && !MUTANT) marked_.emplace")),
    Mutation("leftovers_are_added", "a `.grad` from before the backward is kept apart from it",
             ("grads/reducer.cpp", "  take_leftovers_aside();\n  next_bucket_",
              "  if (!MUTANT) take_leftovers_aside();\n  next_bucket_")),
    Mutation("leftovers_are_not_told", "a step() with a gradient that is not the engine's is an error",
             ("grads/reducer_arrivals.cpp", "if (first.empty() && grad.defined()", "if (!MUTANT && first.empty() && grad.defined()")),
    Mutation("zeros_are_leftovers", "a `.grad` of zeros is none",
             ("grads/reducer_arrivals.cpp", "if (grad.defined() && !is_ours && is_zero",
              "if (!MUTANT && grad.defined() && !is_ours && is_zero")),
    Mutation("graphs_of_gradients_are_leftovers", "`.grad` may stay where create_graph made it",
             ("backward.cpp", "impl.passes.keeps_user_grads = pass.create_graph;",
              "impl.passes.keeps_user_grads = pass.create_graph && !MUTANT;")),
    Mutation("scale_is_unmarked", "the backward of a scaled loss is the engine's",
             ("scale.cpp", "    impl.passes.scale_scope->marked = ", "    if (!MUTANT) impl.passes.scale_scope->marked = ")),
    Mutation("scale_does_not_scale", "scale() multiplies by the loss scale and divides by the accumulation steps",
             ("scale.cpp", "ScaleRoot::apply(loss, seed(impl, options), ticket)",
              "ScaleRoot::apply(loss, MUTANT ? 1.0 : seed(impl, options), ticket)")),
    Mutation("a_second_scale_restarts_the_step", "several roots are one backward",
             ("scale.cpp", "if (impl.progress.is_in_backward()) impl.restart_step();  // the",
              "if ((impl.progress.is_in_backward() || (MUTANT && impl.passes.running)) && !gannet_mutant(\"a_broken_scaled_backward_stays\"))\n    impl.restart_step();  // the")),
    Mutation("a_scaled_loss_given_up_restarts_the_step", "a scaled loss that has no backward leaves the step alone",
             ("backward.cpp", "give_up_backward(EngineBase::Impl& impl) {\n  if (impl.progress.is_in_backward())",
              "give_up_backward(EngineBase::Impl& impl) {\n  if (impl.progress.is_in_backward() || (MUTANT && impl.passes.running))")),
    Mutation("a_scaled_loss_may_lack_its_backward", "step() between scale() and the backward is an error",
             ("progress.cpp", "  if (is_in_backward() || (is_pending && !has_backwarded()))",
              "  if (!MUTANT && (is_in_backward() || (is_pending && !has_backwarded())))")),
    Mutation("a_broken_scaled_backward_stays", "a scaled loss whose backward threw leaves no backward running",
             ("forward.cpp", "if (impl.progress.is_in_backward()) impl.restart_step();  // the program's",
              "if (!MUTANT && impl.progress.is_in_backward()) impl.restart_step();  // the program's")),
    Mutation("gradients_are_not_written_back", "what for_each_gradient's body does to a gradient counts",
             ("accessors.cpp", "    set_full_gradient(name, gradient);", "    if (!MUTANT) set_full_gradient(name, gradient);")),
    Mutation("other_threads_gather_nothing", "a backward on another thread than forward brings parameters",
             ("backward.cpp", "  impl.passes.running->armed = impl.store.arm();",
              "  if (!MUTANT) impl.passes.running->armed = impl.store.arm();")),

    # Sums.
    Mutation("late_gradients_are_dropped", "a gradient that comes behind its bucket is added",
             ("grads/reducer.cpp", "is_late ? add_late(slot, gradient) : hold(",
              "is_late && MUTANT ? void() : is_late ? add_late(slot, gradient) : hold(")),
    Mutation("arrivals_are_not_counted", "a bucket waits for as many gradients as came before",
             ("grads/reducer.cpp", "holds_buckets_ = current_.reduce &&", "holds_buckets_ = !MUTANT && current_.reduce &&"),
             ("grads/reducer_arrivals.cpp", "const at::Tensor& gradient) {\n  const GradientSlot& place = slots_[slot];",
              "const at::Tensor& gradient) {\n  if (MUTANT) return;\n  const GradientSlot& place = slots_[slot];")),
    Mutation("sums_are_summed_again", "a second backward behind a reduction adds to this rank's part",
             ("grads/reducer.cpp", "if (!reduced_) return;", "if (!reduced_ || MUTANT) return;")),
    Mutation("micro_batches_replace_one_another", "gradients of a step's micro-batches are added",
             ("grads/reducer.cpp", "return add_or_copy(parameter.held, gradient, /*adds=*/true);",
              "return add_or_copy(parameter.held, gradient, /*adds=*/!MUTANT);")),
    Mutation("shards_of_sums_replace_one_another", "sums of a step's backwards are added where gradients are sharded",
             ("grads/reducer_buckets.cpp", "    else if (bucket.has_sum)\n      own.add_",
              "    else if (bucket.has_sum && !MUTANT)\n      own.add_")),
    Mutation("old_gradients_stay_in_the_bucket", "a parameter without a gradient counts as zeros where gradients are sharded",
             ("grads/reducer_buckets.cpp", "      if (!slots_[i].has_arrived)\n", "      if (!slots_[i].has_arrived && !MUTANT)\n")),
    Mutation("old_gradients_stay_in_place", "a parameter without a gradient counts as zeros",
             ("grads/reducer_buckets.cpp", "parameter.held = range.flat_grad(parameter).zero_();",
              "parameter.held = MUTANT ? range.flat_grad(parameter) : range.flat_grad(parameter).zero_();")),
    Mutation("sparse_gradients_are_not_made_dense", "sparse gradients are made dense",
             ("grads/reducer.cpp", "if (gradient.is_sparse())\n    gradient", "if (gradient.is_sparse() && !MUTANT)\n    gradient")),
    Mutation("complex_gradients_are_not_made_real", "complex gradients are seen as pairs",
             ("grads/reducer.cpp", "return gradient.is_complex() ?", "return gradient.is_complex() && !MUTANT ?")),
    Mutation("complex_values_are_not_made_real", "complex values that the program wrote are seen as pairs",
             ("module_audit.cpp", "if (value.is_complex()) value", "if (value.is_complex() && !MUTANT) value")),
    Mutation("sparse_tensors_are_sent_as_dense", "buffers of every layout are broadcast",
             ("params/broadcast.cpp", "if (tensor.layout() != at::kStrided) return",
              "if (tensor.layout() != at::kStrided && !MUTANT) return")),
    Mutation("strides_are_taken_for_a_rows", "parameters of any layout go into the flat buffer in the order of their elements",
             ("params/place.cpp", ".view(parameter.shape).copy_(real_view(parameter.tensor));",
              ".view(parameter.shape).copy_(MUTANT && parameter.tensor.dim() == 2 && !parameter.tensor.is_contiguous() ? "
              "parameter.tensor.t().reshape(parameter.shape) : real_view(parameter.tensor));")),
    Mutation("the_mean_is_a_sum", "gradients are divided by the number of ranks (any training at all)",
             ("boundary.cpp", "return impl.reducer->mean_factor() / impl.scaler.scale();",
              "return (MUTANT ? 1.0 : impl.reducer->mean_factor()) / impl.scaler.scale();")),

    # Steps.
    Mutation("gradients_are_too_large", "the update takes gradients as they are (any training at all)",
             ("update/range_pass.cpp", "args.grad_scale = options_.grad_scale;",
              "args.grad_scale = options_.grad_scale * (MUTANT ? 1.5 : 1.0);")),
    Mutation("the_loss_is_not_divided", "a loss is divided by the accumulation steps",
             ("backward.cpp", "(options.scale_wrt_gas ? static_cast<double>",
              "(options.scale_wrt_gas && !MUTANT ? static_cast<double>")),
    Mutation("nothing_is_clipped", "gradient_clipping",
             ("grads/check.cpp", "if (limit > 0) {",
              "if (limit > 0 && !MUTANT) {")),
    Mutation("an_infinite_norm_is_a_number", "finite fp64 gradients whose squares overflow have their norm",
             ("grads/check.cpp", "if (finite && std::isinf(total))",
              "if (finite && std::isinf(total) && !MUTANT)")),
    Mutation("gradients_may_be_infinite", "a step with a gradient that is not finite is not taken",
             ("step.cpp", "= boundary::check(impl); found.finite && !impl.passes.skips_step()) {",
              "= boundary::check(impl); (found.finite || MUTANT) && !impl.passes.skips_step()) {")),
    Mutation("losses_may_be_infinite", "a loss that is not finite ends its step at once",
             ("backward.cpp", "if (note_loss(impl, loss, options) || impl.skip_policy.skips) return;",
              "if (note_loss(impl, loss, options) || impl.skip_policy.skips || MUTANT) return;")),
    Mutation("errors_keep_gradients", "a caught error forgets the gradients of its step",
             ("backward.cpp", "  if (reducer) reducer->abandon();",
              "  if (reducer && !MUTANT) reducer->abandon();")),
    Mutation("errors_keep_the_count", "the micro-batch behind a caught error is the first of its step",
             ("progress.cpp", "  micro_in_step = 0;\n  ++caught_errors;",
              "  if (!MUTANT) micro_in_step = 0;\n  ++caught_errors;")),
    Mutation("step_comes_at_any_time", "step() without a backward is an error",
             ("progress.cpp", "  if (!has_backwarded())\n    throw",
              "  if (!has_backwarded() && !MUTANT)\n    throw")),
    Mutation("backward_comes_at_any_time", "backward() without a forward is an error",
             ("progress.cpp", "  if (!holds_micro_batch())\n    throw",
              "  if (!holds_micro_batch() && !MUTANT)\n    throw")),
    Mutation("versions_are_not_advanced", "a graph that saved values from before an update says so in backward",
             ("boundary.cpp", "        parameter.tensor.unsafeGetTensorImpl()->bump_version();",
              "        if (!MUTANT) parameter.tensor.unsafeGetTensorImpl()->bump_version();")),
    Mutation("boundaries_are_ours_alone", "set_gradient_accumulation_boundary()",
             ("engine.cpp", "impl_->progress.forced_boundary = is_boundary;",
              "if (!MUTANT) impl_->progress.forced_boundary = is_boundary;")),
    Mutation("batch_sizes_change_at_once", "a batch size set within a step counts from the next one on",
             ("engine.cpp", "if (!has_begun) return impl_->start_next_step();",
              "if (MUTANT || !has_begun) return impl_->start_next_step();")),
    Mutation("batch_sizes_do_not_change", "set_train_batch_size()",
             ("progress.cpp", "  if (accumulation_from_next == 0) return",
              "  if (accumulation_from_next == 0 || MUTANT) return")),
    Mutation("rates_do_not_change", "set_lr()",
             ("engine.cpp", "*current = lr;", "*current = MUTANT ? *current : lr;")),
    Mutation("zero_grad_keeps_gradients", "zero_grad() forgets what the engine has gathered",
             ("engine.cpp", "    forget_gradients(impl);\n", "    if (!MUTANT) forget_gradients(impl);\n")),
    Mutation("zero_grad_keeps_the_count", "the micro-batch behind zero_grad() is the first of its step",
             ("progress.cpp", "if (holds_micro_batch()) state_ = State::kForwarded;\n  micro_in_step = 0;",
              "if (holds_micro_batch()) state_ = State::kForwarded;\n  if (!MUTANT) micro_in_step = 0;")),
    Mutation("zero_grad_forgets_the_forward", "zero_grad() may stand between forward and backward",
             ("engine.cpp", "  impl.progress.drop_gradients();\n",
              "  if (MUTANT) {\n    impl.progress.restart_step();\n    --impl.progress.caught_errors;\n  }\n  impl.progress.drop_gradients();\n")),
    Mutation("evaluation_is_training", "a forward under NoGradGuard is no part of a step",
             ("forward.cpp", "impl.passes.training && at::GradMode::is_enabled();",
              "impl.passes.training && (MUTANT || at::GradMode::is_enabled());")),
    Mutation("an_evaluation_never_ends", "train() behind eval() trains",
             ("evaluation.cpp", "  impl.passes.training = on;",
              "  impl.passes.training = on && (!MUTANT || impl.passes.training);")),
    Mutation("updates_are_not_published", "what a step made of parameters comes to every rank at stage 3 (any training at all)",
             ("params/publish.cpp", "  for (auto& range : ranges_)\n    if (range.is_gathered_on_demand_) all_gather_persistent(range);\n  finish_publishing();",
              "  for (auto& range : ranges_)\n    if (range.is_gathered_on_demand_ && !MUTANT) all_gather_persistent(range);\n  finish_publishing();")),
    Mutation("gathered_values_outlive_the_update", "gathered parameters are forgotten at the update",
             ("update/updater.cpp", "Updater::update(const UpdateStep& step) {\n  Timers::Scope timed(context_.timers, TimedPhase::kUpdate);\n  store_.forget_gathered();",
              "Updater::update(const UpdateStep& step) {\n  Timers::Scope timed(context_.timers, TimedPhase::kUpdate);\n  if (!MUTANT) store_.forget_gathered();")),

    # Values by name, guards, checkpoints.
    Mutation("values_by_name_forget_others", "what the program wrote before set_full_fp32_parameter() is taken in first",
             ("accessors.cpp", 'impl_->audit();\n  refuse_write(*impl_, "set_full_fp32_parameter()", found.range->group, name);',
              '{\n    if (!MUTANT) impl_->audit();\n  }\n  refuse_write(*impl_, "set_full_fp32_parameter()", found.range->group, name);')),
    Mutation("guards_forget_others", "what the program wrote before a guard is taken in first",
             ("gathered.cpp", "state_->impl->progress.is_whole()) state_->impl->audit();",
              "state_->impl->progress.is_whole() && !MUTANT) state_->impl->audit();")),
    Mutation("guards_ignore_new_memory", "set_data under a guard is what the guard publishes",
             ("gathered.cpp", "if (is_replaced_anywhere) return take_new_memory",
              "if (is_replaced_anywhere && !MUTANT) return take_new_memory")),
    Mutation("loads_leave_new_memory", "a load brings the engine's memory back",
             ("engine/checkpoint/load.cpp", "if (impl.reducer && impl.progress.is_whole()) impl.audit();",
              "if (impl.reducer && impl.progress.is_whole() && !MUTANT) impl.audit();"),
             ("engine/checkpoint/load.cpp", "if (impl.reducer) impl.module_audit->reclaim();",
              "if (impl.reducer && !MUTANT) impl.module_audit->reclaim();")),
    Mutation("gradients_that_join_show_no_mark", "clearing a gradient that came before its parameter joined is noticed",
             ("grads/reducer_marks.cpp", "if (!parameter.tensor.grad().defined()) mark_gradient",
              "if (!MUTANT && !parameter.tensor.grad().defined()) mark_gradient")),
    Mutation("loads_are_not_published", "what a load brought comes to every rank",
             ("engine/checkpoint/load.cpp", "    impl_.store.publish_all();\n", "    if (!MUTANT) impl_.store.publish_all();\n")),
]


GENERAL = {mutation.name for mutation in MUTATIONS if "any training" in mutation.without}


def mutated_files():
    """file -> its text with every mutation in it, asleep."""
    texts, wrong = {}, []
    for mutation in MUTATIONS:
        for file, old, new in mutation.edits:
            if file not in texts:
                texts[file] = (ROOT / file).read_text()
            if texts[file].count(old) != 1:
                wrong.append(f"{mutation.name}: its text occurs {texts[file].count(old)} times in {file}: {old.strip()!r}")
            elif "MUTANT" not in new:
                wrong.append(f"{mutation.name}: its new text has no MUTANT")
            texts[file] = texts[file].replace(old, new.replace("MUTANT", f'gannet_mutant("{mutation.name}")'))
    if wrong:
        sys.exit("\n".join(wrong))
    prelude = (  # once for files that are compiled together
        "#ifndef GANNET_MUTANTS\n#define GANNET_MUTANTS\n#include <cstdlib>\n#include <cstring>\n"
        "namespace {\n[[maybe_unused]] bool gannet_mutant(const char* name) {\n"
        '  static const char* const awake = std::getenv("GANNET_MUTANT");\n'
        "  return awake && std::strcmp(awake, name) == 0;\n}\n}  // namespace\n#endif\n"
    )
    return {file: prelude + text for file, text in texts.items()}


class Ranks:
    """The rows on several processes, until all are done or one of them turns red."""

    def __init__(self, program, mutant, rows, ranks, stages, dtypes):
        port = free_port()
        self.lines, self.processes = [[] for _ in range(ranks)], []
        for rank in range(ranks):
            variables = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                             MASTER_PORT=str(port), OMP_NUM_THREADS="1", GANNET_TEST_RANK_BODY="rows", TELL_ROWS="1",
                             ROWS=" ".join(rows), STAGES=stages, DTYPES=dtypes)
            variables.pop("GANNET_MUTANT", None)
            if mutant:
                variables["GANNET_MUTANT"] = mutant
            self.processes.append(subprocess.Popen([program], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))

    def run(self):
        """None or the row that turned red and why, and the rows up to it."""
        chooser, partial, open_ranks = selectors.DefaultSelector(), {}, set()
        for rank, process in enumerate(self.processes):
            os.set_blocking(process.stdout.fileno(), False)
            chooser.register(process.stdout, selectors.EVENT_READ, rank)
            partial[rank] = b""
            open_ranks.add(rank)
        ends, heard = None, time.monotonic()  # `ends`: behind the first bad news, the others have a moment to tell theirs
        why = {}
        while open_ranks:
            now = time.monotonic()
            if ends and now > ends:
                break
            if now - heard > QUIET_S:
                why = {rank: "hangs" for rank in open_ranks}
                break
            for key, _ in chooser.select(0.2):
                rank, data = key.data, os.read(key.fd, 1 << 16)
                heard = time.monotonic()
                if data:
                    *whole, partial[rank] = (partial[rank] + data).split(b"\n")
                    self.lines[rank] += [line.decode(errors="replace") for line in whole]
                    continue
                chooser.unregister(key.fileobj)
                open_ranks.discard(rank)
                status = self.processes[rank].wait()
                if status != 0:
                    third = next((line for line in self.lines[rank] if line.startswith("THIRD ")), None)
                    last = " / ".join(line for line in self.lines[rank][-3:] if not line.startswith("ROW "))
                    why[rank] = third.split(" at ", 1)[1] if third else f"status {status}: {last}"
                    ends = ends or time.monotonic() + 0.3
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
        # The earliest of the rows in which a rank came to grief: the rows behind it were drawn in.
        red, done = None, []
        for rank, reason in why.items():
            begun = [line[4:] for line in self.lines[rank] if line.startswith("ROW ")]
            if not begun:
                sys.exit(f"rank {rank} began no row: {reason}\n" + "\n".join(self.lines[rank][-5:]))
            if red is None or len(begun) < len(done):
                red, done = (begun[-1], reason), begun
        return red, done


def free_port():
    for _ in range(100):
        port = random.randint(12000, 31999)  # below those of outgoing connections
        with socket.socket() as one:
            try:
                one.bind(("", port))
                return port
            except OSError:
                continue
    sys.exit("no free port")


def red_rows(program, mutant, rows):
    """row -> why, of those that turned red."""
    red = {}
    for ranks, stages, dtypes in SETTINGS:
        left = [row for row in rows if row not in red]
        while left:
            found, done = Ranks(program, mutant, left, ranks, stages, dtypes).run()
            if not found:
                break
            red[found[0]] = found[1]
            left = [row for row in left if row not in done]
    return red


def all_rows():
    rows = []
    for file in sorted((ROOT / "tests/guest").glob("*_rows.cpp")):
        rows += re.findall(r"^ROW(?:_WHERE)?\((\w+),", file.read_text(), re.M)
    return rows


def read_table():
    seen, reasons = {}, {}
    if TABLE.exists():
        for line in TABLE.read_text().splitlines():
            if line and not line.startswith("#"):
                row, found = line.split(": ", 1)
                if found.startswith("never"):
                    reasons[row] = found[len("never"):]
                seen[row] = [] if found.startswith("never") else found.split(", ")
    return seen, reasons


def write_table(rows, seen, reasons):
    order = [mutation.name for mutation in MUTATIONS]
    lines = []
    for row in rows:
        found = sorted(set(seen.get(row, [])) & set(order), key=order.index)
        lines.append(f"{row}: " + (", ".join(found) if found else "never" + reasons.get(row, "")))
    TABLE.write_text(HEAD + "\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutations", nargs="*", metavar="MUTATION", help="default: all")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="these rows alone; the others' lines stay")
    parser.add_argument("--unseen", action="store_true",
                        help="only rows that no mutation turned red, but for those that turn any training red")
    parser.add_argument("--build", default="ninja -C build gannet_core", metavar="COMMAND")
    parser.add_argument("--program", default=str(ROOT / "build/tests/guest_test"), help="guest_test, built before")
    parser.add_argument("--check", action="store_true", help="the table of mutations against the files, and no more")
    parser.add_argument("--run", metavar="COMMAND", help="instead of the rows: this command under each mutation")
    parser.add_argument("--list", action="store_true", help="the mutations and what each takes away")
    asked = parser.parse_args()
    names = [mutation.name for mutation in MUTATIONS]
    if asked.list:
        for mutation in MUTATIONS:
            print(f"{mutation.name:45} without: {mutation.without}")
        return
    rows = all_rows()
    for given, known in ((asked.mutations, names), (asked.rows or [], rows)):
        for name in given:
            if name not in known:
                sys.exit(f"there is no '{name}'; known: {', '.join(known)}")
    texts = mutated_files()
    if asked.check:
        return
    status = ["git", "status", "--porcelain", "--", *texts]
    dirty = subprocess.run(status, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if dirty:
        sys.exit("these files have changes that are not committed:\n" + dirty)
    originals = {file: (ROOT / file).read_bytes() for file in texts}

    chosen = asked.mutations or names
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of `finally`
    try:
        for file, text in texts.items():
            (ROOT / file).write_text(text)
        subprocess.run(asked.build, shell=True, cwd=ROOT, check=True)
        if asked.run:
            for mutant in chosen:
                status = subprocess.run(asked.run, shell=True, cwd=ROOT, env=dict(os.environ, GANNET_MUTANT=mutant)).returncode
                print(f"{mutant}: exit code {status}", flush=True)
            return
        seen, reasons = read_table()
        measured = asked.rows or rows
        if red := red_rows(asked.program, None, measured):
            sys.exit(f"red with every mutation asleep: {red}")
        for mutant in chosen:
            begin = time.monotonic()
            if asked.unseen:
                measured = [row for row in asked.rows or rows if not set(seen.get(row, [])) - GENERAL]
            red = red_rows(asked.program, mutant, measured)
            print(f"{mutant}: {len(red)} rows, {time.monotonic() - begin:.0f} s", flush=True)
            for row, why in red.items():
                print(f"    {row}: {why[:200]}", flush=True)
            for row in measured:
                others = [name for name in seen.get(row, []) if name != mutant]
                seen[row] = others + ([mutant] if row in red else [])
            write_table(rows, seen, reasons)
    finally:
        for file, text in originals.items():
            (ROOT / file).write_bytes(text)
        subprocess.run(asked.build, shell=True, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
