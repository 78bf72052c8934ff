#include "describe.h"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "dtype_names.h"

namespace gannet::exported {
namespace {

std::string joined(c10::ArrayRef<int64_t> numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

std::string describe(const c10::IValue& value) {
  if (value.isTensor()) return exported::describe(value.toTensor());
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isDouble()) return Value(value.toDouble()).to_json();
  if (value.isNone()) return "None";
  if (value.isIntList()) return "[" + joined(value.toIntVector()) + "]";
  return value.tagKind();
}

std::string describe(const Operand& operand, const std::vector<c10::IValue>& values) {
  if (operand.kind == Operand::Kind::kConstant) return describe(operand.constant);
  if (operand.kind == Operand::Kind::kDevice) return "the module's device";
  if (operand.kind == Operand::Kind::kValue) return describe(values[operand.slot]);
  std::string text;
  for (const Operand& one : operand.list) text += (text.empty() ? "" : ", ") + describe(one, values);
  return "[" + text + "]";
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return name_of(tensor.scalar_type()) + "[" + joined(tensor.sizes()) + "]";
}

Error failed(const Program& program, const Step& step, const std::string& what, const std::vector<c10::IValue>& values) {
  std::string arguments;
  for (const Operand& one : step.operands) {
    if (arguments.size() > 600) {
      arguments += ", ...";
      break;
    }
    arguments += (arguments.empty() ? "" : ", ") + describe(one, values);
  }
  return Error(ErrorCode::kArgument,
               "graph " + program.name() + ": operator " + step.node->op + " (node '" + step.node->name + "'" +
                   (step.node->layer.empty() ? "" : ", layer '" + step.node->layer + "'") + ") failed: " + what +
                   "; its arguments: " + arguments,
               "compare the batch with what the model takes; `gannet model check FOLDER` runs the batch of the export");
}

at::ScalarType dtype_of(const Argument& argument) { return dtype_named(argument.text).value(); }

}  // namespace gannet::exported
