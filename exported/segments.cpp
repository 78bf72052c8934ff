#include "segments.h"

#include <ATen/core/IListRef.h>
#include <ATen/ops/scalar_tensor.h>
#include <gannet/error.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "run.h"

namespace gannet::exported {
namespace {

using GivenAs = Placeholder::Kind;

// The steps of part [first, last) of the graph, and the slots that it passes to the next part.
struct PartSteps {
  std::vector<size_t> steps, results;
};

PartSteps part_of(const Program& program, const Flow& flow, size_t first, size_t last, bool is_loss) {
  PartSteps part;
  std::vector<size_t> fixed;
  for (size_t s = first; s < last; ++s)
    if (flow.is_fixed[s]) fixed.push_back(s);
  if (is_loss)
    part.results = {program.routines().back().outputs[0].slot};
  else
    part.results = flow.crossing(last);
  part.steps = flow.with_free_steps(fixed, is_loss ? part.results : std::vector<size_t>());
  return part;
}

// The placeholders that a part uses.
std::vector<size_t> placeholders_of(const Flow& flow, const PartSteps& part) {
  std::set<size_t> found;
  for (const size_t s : part.steps)
    for (const size_t slot : flow.reads[s])
      if (slot < flow.inputs) found.insert(slot);
  for (const size_t slot : part.results)
    if (slot < flow.inputs) found.insert(slot);
  return {found.begin(), found.end()};
}

size_t end_of(const Cuts& cuts, size_t layer) { return layer + 1 < cuts.layers.size() ? cuts.layers[layer + 1].step : cuts.loss; }

std::vector<std::string> in_order_of(const GraphFile& file, const std::set<std::string>& names) {
  std::vector<std::string> ordered;
  for (const Input& input : file.inputs)
    if (names.contains(input.name)) ordered.push_back(input.name);
  return ordered;
}

void add_inputs(const Program& program, const std::vector<size_t>& placeholders, std::set<std::string>& names) {
  for (const size_t slot : placeholders)
    if (program.file().placeholders[slot].kind == GivenAs::kInput) names.insert(program.file().placeholders[slot].target);
}

// Copies steps into a new routine with its own slot numbers.
class RoutineMaker {
 public:
  explicit RoutineMaker(const Routine& whole) : whole_(whole) {}

  size_t add_input() {
    ++routine_.inputs;
    return routine_.slots++;
  }
  void name(size_t slot, size_t own) { own_[slot] = own; }
  void add_step(size_t s) {
    Step step = whole_.steps[s];
    for (Operand& one : step.operands) renumber(one);
    for (size_t i = 0; i < step.results; ++i) own_[step.first_result + i] = routine_.slots + i;
    step.first_result = routine_.slots;
    routine_.slots += step.results;
    step.ends.clear();
    routine_.steps.push_back(std::move(step));
  }
  void add_output(size_t own) { routine_.outputs.push_back({Operand::Kind::kValue, Form::kAny, own, {}, {}}); }
  size_t own(size_t slot) const { return own_.at(slot); }
  Routine finish() {
    find_ends(routine_);
    return std::move(routine_);
  }

 private:
  void renumber(Operand& operand) const {
    if (operand.kind == Operand::Kind::kValue) operand.slot = own_.at(operand.slot);
    for (Operand& one : operand.list) renumber(one);
  }
  const Routine& whole_;
  Routine routine_;
  std::map<size_t, size_t> own_;  // slots of the whole routine
};

// `travel`: the inputs that are passed on to the next part.
Segment made(const Program& program, const Flow& flow, const PartSteps& part, Segment segment,
             const std::vector<std::string>& travel) {
  const auto& placeholders = program.file().placeholders;
  RoutineMaker maker(program.routines().back());
  for (const size_t slot : segment.values) {
    maker.name(slot, maker.add_input());
    segment.is_number.push_back(flow.kinds[slot] == Flow::Kind::kNumber);
  }
  std::map<std::string, size_t> by_name;
  for (const std::string& name : segment.inputs) by_name[name] = maker.add_input();
  for (const size_t slot : placeholders_of(flow, part)) {
    const Placeholder& one = placeholders[slot];
    if (one.kind == GivenAs::kInput) {
      maker.name(slot, by_name.at(one.target));
      continue;
    }
    maker.name(slot, maker.add_input());
    segment.given.push_back(slot);
    if (one.kind != GivenAs::kConstant) segment.tensors.push_back(one.target);
  }
  for (const size_t s : part.steps) maker.add_step(s);
  for (const size_t slot : part.results) maker.add_output(maker.own(slot));
  for (const std::string& name : travel) maker.add_output(by_name.at(name));
  segment.routine = maker.finish();
  return segment;
}

c10::IValue from_wire(const at::Tensor& tensor, bool is_number) {
  if (!is_number) return tensor;
  const at::Scalar number = tensor.item();
  return c10::IValue(number);
}

at::Tensor to_wire(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (!value.isScalar())
    throw Error(ErrorCode::kUnsupported, "a value of type " + value.tagKind() + " passes between two layers of an exported model",
                "tensors and numbers do: train this model without layers (no activation_checkpointing, no pipeline)");
  const at::Scalar number = value.toScalar();
  return at::scalar_tensor(number, at::TensorOptions().dtype(number.type()));
}

}  // namespace

NeededInputs inputs_needed(const Program& program, const Flow& flow, const Cuts& cuts) {
  std::set<std::string> of_layers, of_loss;
  for (size_t i = 0; i < cuts.layers.size(); ++i)
    add_inputs(program, placeholders_of(flow, part_of(program, flow, cuts.layers[i].step, end_of(cuts, i), false)), of_layers);
  add_inputs(program, placeholders_of(flow, part_of(program, flow, cuts.loss, flow.steps, true)), of_loss);
  return {in_order_of(program.file(), of_layers), in_order_of(program.file(), of_loss)};
}

Segments segments_of(const Program& program, const Flow& flow, const Cuts& cuts, const NeededInputs& needed) {
  const size_t layers = cuts.layers.size();
  std::vector<PartSteps> parts;
  for (size_t i = 0; i < layers; ++i)
    parts.push_back(part_of(program, flow, cuts.layers[i].step, end_of(cuts, i), /*is_loss=*/false));
  std::vector<std::vector<std::string>> travel(layers + 1);  // the inputs passed to each layer; the last layer passes none on
  std::set<std::string> later;
  for (size_t i = layers; i-- > 0;) {
    add_inputs(program, placeholders_of(flow, parts[i]), later);
    travel[i] = in_order_of(program.file(), later);
  }
  travel[0] = needed.layers;
  Segments all;
  for (size_t i = 0; i < layers; ++i) {
    Segment segment;
    segment.name = cuts.layers[i].name;
    segment.first = cuts.layers[i].step;
    segment.last = end_of(cuts, i);
    if (i > 0) segment.values = flow.crossing(segment.first);
    segment.inputs = travel[i];
    all.layers.push_back(made(program, flow, parts[i], std::move(segment), travel[i + 1]));
  }
  Segment loss;
  loss.name = "loss";
  loss.first = cuts.loss;
  loss.last = flow.steps;
  loss.values = flow.crossing(cuts.loss);
  loss.inputs = needed.loss;
  all.loss = made(program, flow, part_of(program, flow, cuts.loss, flow.steps, true), std::move(loss), {});
  return all;
}

Wire run_segment(const Program& program, const Segment& segment, const Wire& wire, const std::vector<at::Tensor>& given,
                 c10::Device device) {
  const size_t wanted = segment.values.size() + segment.inputs.size();
  if (wire.size() != wanted)
    throw Error(
        ErrorCode::kArgument,
        "layer '" + segment.name + "' of the graph " + program.name() + " takes " + std::to_string(wanted) +
            " tensors, and was given " + std::to_string(wire.size()),
        "give a layer what the layer before it returned; the first one takes the inputs of ExportedModule::micro_batch()");
  std::vector<c10::IValue> values = take_values();
  for (size_t i = 0; i < wire.size(); ++i)
    values.push_back(from_wire(wire[i], i < segment.is_number.size() && segment.is_number[i]));
  values.insert(values.end(), given.begin(), given.end());
  Wire results;
  std::vector<c10::IValue> outputs = run_routine(program, segment.routine, std::move(values), device);
  for (const c10::IValue& one : outputs) results.push_back(to_wire(one));
  give_back(std::move(outputs));
  return results;
}

}  // namespace gannet::exported
