#include "program.h"

#include <gannet/error.h>

#include <span>
#include <utility>

#include "dtype_names.h"
#include "json_members.h"
#include "operands.h"

namespace gannet::exported {
namespace {

using Kind = Argument::Kind;

// Compiles one graph, whose nested graphs are already compiled.
class Compiler {
 public:
  Compiler(const GraphFile& file, std::vector<Routine>& earlier, size_t index)
      : file_(file), graph_(file.graphs[index]), earlier_(earlier), is_main_(index + 1 == file.graphs.size()) {}

  Routine compile();

 private:
  // The slots of a value's results. Only getitem may select from several results.
  struct ResultSlots {
    size_t first = 0, count = 1;
    bool is_several = false;
  };

  std::string where(const Node& node) const {
    return file_.path + ": graph '" + graph_.name + "', node '" + node.name + "'" +
           (node.layer.empty() ? "" : " of layer '" + node.layer + "'");
  }
  size_t slot_of(const Argument& value, const std::string& where) const {
    const ResultSlots& place = places_[static_cast<size_t>(value.integer)];
    if (place.is_several) refuse_file(where, "a value of several results is used as a whole");
    return place.first;
  }
  void add_node(const Node& node);
  bool is_alias(const Node& node, const std::string& where);
  Step nested(const Node& node, const std::string& where);
  Step dispatched(const Node& node, const std::string& where);
  void add_effects(const Step& step, const std::string& where);

  const GraphFile& file_;
  const Graph& graph_;
  std::vector<Routine>& earlier_;  // path compression on look-up
  bool is_main_;
  SlotOf slot_ = [this](const Argument& value, const std::string& place) { return slot_of(value, place); };
  std::vector<ResultSlots> places_;  // by the number of the value
  Routine routine_;
};

Routine Compiler::compile() {
  routine_.inputs = graph_.inputs.size();
  for (size_t i = 0; i < routine_.inputs; ++i) places_.push_back({i, 1, false});
  routine_.slots = routine_.inputs;
  routine_.writes = Writes(routine_.inputs);
  for (size_t i = 0; is_main_ && i < routine_.inputs; ++i)
    if (const auto kind = file_.placeholders[i].kind;
        kind == Placeholder::Kind::kParameter || kind == Placeholder::Kind::kConstant)
      routine_.writes.guard(i);
  for (const Node& node : graph_.nodes) add_node(node);
  for (const Argument& one : graph_.outputs)
    routine_.outputs.push_back(plain_operand(one, slot_, file_.path + ": graph '" + graph_.name + "', outputs"));
  find_ends(routine_);
  return std::move(routine_);
}

void Compiler::add_node(const Node& node) {
  const std::string here = where(node);
  if (is_alias(node, here)) return;
  Step step;
  if (node.op == "getitem") {
    step.kind = Step::Kind::kGetItem;
    for (const Argument& one : node.arguments) step.operands.push_back(plain_operand(one, slot_, here));
    if (step.operands.size() != 2 || !node.keywords.empty()) refuse_file(here, "getitem has a list and an index");
  } else if (node.op.starts_with("py.")) {
    const PythonRow row = python_operator(node.op);
    if (!row.call)
      throw Error(ErrorCode::kUnsupported, here + ": there is no operator '" + node.op + "'",
                  "use a newer Gannet, or export the model again");
    step.kind = Step::Kind::kPython;
    step.python = row.call;
    for (const Argument& one : node.arguments) step.operands.push_back(plain_operand(one, slot_, here));
    if (step.operands.size() < row.fewest || step.operands.size() > row.most || !node.keywords.empty())
      refuse_file(here, "'" + node.op + "' has " + std::to_string(step.operands.size()) + " operands");
  } else if (node.op.starts_with("nested.")) {
    step = nested(node, here);
  } else {
    step = dispatched(node, here);
  }
  step.node = &node;
  step.first_result = routine_.slots;
  const bool is_several = step.kind == Step::Kind::kOperator ? step.results != 1 : node.op.starts_with("nested.");
  places_.push_back({routine_.slots, step.results, is_several});
  routine_.slots += step.results;
  add_effects(step, here);
  routine_.steps.push_back(std::move(step));
}

// getitem of a multi-result value is an alias for one of the results, not a step.
bool Compiler::is_alias(const Node& node, const std::string& here) {
  if (node.op != "getitem" || node.arguments.size() != 2 || node.arguments[0].kind != Kind::kValue) return false;
  const ResultSlots place = places_[static_cast<size_t>(node.arguments[0].integer)];
  if (!place.is_several) return false;
  const Argument& index = node.arguments[1];
  if (index.kind != Kind::kInt || index.integer < 0 || static_cast<size_t>(index.integer) >= place.count)
    refuse_file(here, "it takes a result that there is not: there are " + std::to_string(place.count));
  places_.push_back({place.first + static_cast<size_t>(index.integer), 1, false});
  return true;
}

Step Compiler::nested(const Node& node, const std::string& here) {
  Step step;
  const auto& arguments = node.arguments;
  size_t graphs = 1, before = 1;  // arguments before the first graph
  if (node.op == "nested.grad_mode") {
    step.kind = Step::Kind::kGradMode;
  } else if (node.op == "nested.autocast") {
    step.kind = Step::Kind::kAutocast;
    before = 4;
  } else if (node.op == "nested.cond") {
    step.kind = Step::Kind::kCond;
    graphs = 2;
  } else {
    throw Error(ErrorCode::kUnsupported, here + ": there is no operator '" + node.op + "'",
                "use a newer Gannet, or export the model again");
  }
  if (arguments.size() < before + graphs || !node.keywords.empty())
    refuse_file(here, "arguments of '" + node.op + "' are missing");
  for (size_t i = 0; i < graphs; ++i) {
    if (arguments[before + i].kind != Kind::kGraph) refuse_file(here, "'" + node.op + "' has no graph where one is expected");
    step.routines[i] = static_cast<size_t>(arguments[before + i].integer);
  }
  const auto is_bool = [&](size_t i) { return arguments[i].kind == Kind::kBool; };
  if (step.kind == Step::Kind::kGradMode && !is_bool(0)) refuse_file(here, "its first argument is not a boolean");
  if (step.kind == Step::Kind::kAutocast && (arguments[0].kind != Kind::kDevice || !is_bool(2) || !is_bool(3)))
    refuse_file(here, "its arguments are not a device, a dtype and two booleans");
  if (step.kind == Step::Kind::kAutocast && arguments[1].kind != Kind::kNone &&
      (arguments[1].kind != Kind::kDtype || !dtype_named(arguments[1].text)))
    refuse_file(here, "its dtype is unknown");
  if (step.kind == Step::Kind::kCond) {
    step.operands.push_back(plain_operand(arguments[0], slot_, here));
    if (arguments.size() != 4 || arguments[3].kind != Kind::kList) refuse_file(here, "its operands are not a list");
    for (const Argument& one : arguments[3].list) step.operands.push_back(plain_operand(one, slot_, here));
  } else {
    for (size_t i = before + graphs; i < arguments.size(); ++i) step.operands.push_back(plain_operand(arguments[i], slot_, here));
  }
  const size_t given = step.operands.size() - (step.kind == Step::Kind::kCond ? 1 : 0);
  step.results = earlier_[step.routines[0]].outputs.size();
  for (size_t i = 0; i < graphs; ++i)
    if (earlier_[step.routines[i]].inputs != given || earlier_[step.routines[i]].outputs.size() != step.results)
      refuse_file(here, "the graph '" + file_.graphs[step.routines[i]].name + "' has other inputs or outputs than its use");
  return step;
}

Step Compiler::dispatched(const Node& node, const std::string& here) {
  Step step;
  step.op = find_operator(node, here, file_.torch_version);
  step.operands = operands_of(node, step.op->schema(), slot_, here, file_.torch_version);
  step.results = step.op->schema().returns().size();
  return step;
}

template <class Visit>
void visit_slots(const Operand& operand, const Visit& visit) {
  if (operand.kind == Operand::Kind::kValue) visit(operand.slot);
  for (const Operand& one : operand.list) visit_slots(one, visit);
}

// Tracks what the step's results may be views of. Weights belong to the optimizer and constants are
// shared between calls, so a write into either is refused, including writes through views and in
// nested graphs where the outermost graph calls them.
void Compiler::add_effects(const Step& step, const std::string& here) {
  const auto require_not_guarded = [&](std::optional<size_t> input) {
    if (!input) return;
    const Placeholder& target = file_.placeholders[*input];
    throw Error(ErrorCode::kUnsupported,
                here + ": " + step.node->op + " writes into the " +
                    (target.kind == Placeholder::Kind::kParameter ? "parameter '" + target.target + "'"
                                                                  : std::string("constant ") + target.target),
                "let the model's forward write only into buffers of its state dict");
  };
  const auto add_views = [&](const Operand& operand) {
    visit_slots(operand, [&](size_t slot) {
      for (size_t k = 0; k < step.results; ++k) routine_.writes.add_view(step.first_result + k, slot);
    });
  };
  if (step.kind == Step::Kind::kGetItem) {
    add_views(step.operands[0]);
  } else if (step.kind == Step::Kind::kOperator) {
    const std::string& op = step.node->op;  // "aten.NAME.OVERLOAD"
    const Effects effects = effects_of(op.substr(5, op.rfind('.') - 5), step.op->schema(), step.operands);
    for (const size_t i : effects.written) {
      const Operand& operand = step.operands[i];
      if (operand.kind == Operand::Kind::kConstant && !operand.constant.isNone()) refuse_file(here, op + " writes into a number");
      visit_slots(operand, [&](size_t slot) { require_not_guarded(routine_.writes.add_write(slot)); });
    }
    for (const size_t i : effects.viewed) add_views(step.operands[i]);
  } else if (step.kind != Step::Kind::kPython) {
    const bool is_cond = step.kind == Step::Kind::kCond;
    for (size_t i = 0; i < (is_cond ? 2 : 1); ++i) {
      Routine& nested = earlier_[step.routines[i]];
      require_not_guarded(routine_.writes.add_call(nested.writes, std::span(step.operands).subspan(is_cond ? 1 : 0),
                                                   nested.outputs, step.first_result));
    }
  }
}

}  // namespace

void find_ends(Routine& routine) {
  constexpr size_t kNever = ~size_t{0};
  std::vector<size_t> last(routine.slots, kNever);
  for (size_t i = 0; i < routine.steps.size(); ++i) {
    const Step& step = routine.steps[i];
    for (size_t k = 0; k < step.results; ++k) last[step.first_result + k] = i;
    for (const Operand& one : step.operands) visit_slots(one, [&](size_t slot) { last[slot] = i; });
  }
  for (const Operand& one : routine.outputs) visit_slots(one, [&](size_t slot) { last[slot] = kNever; });
  for (size_t slot = 0; slot < routine.slots; ++slot)
    if (last[slot] != kNever) routine.steps[last[slot]].ends.push_back(slot);
}

Program::Program(GraphFile file, const std::map<std::string, at::Tensor>& constants) : file_(std::move(file)) {
  for (size_t i = 0; i < file_.graphs.size(); ++i) routines_.push_back(Compiler(file_, routines_, i).compile());
  for (const Placeholder& one : file_.placeholders) {
    if (one.kind != Placeholder::Kind::kConstant) continue;
    const auto found = constants.find(one.target);
    if (found == constants.end()) refuse_file(file_.path, "the constant '" + one.target + "' is not in constants.safetensors");
    constants_.push_back(found->second);
  }
}

const std::vector<at::Tensor>& Program::constants_on(c10::Device device) const {
  if (device.is_cpu()) return constants_;
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = on_devices_.try_emplace(device.str());
  if (is_new)
    for (const at::Tensor& one : constants_) place->second.push_back(one.to(device));
  return place->second;
}

}  // namespace gannet::exported
