#include "operands.h"

#include <ATen/ScalarOps.h>
#include <gannet/error.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>

#include "allowed_operators.h"
#include "dtype_names.h"
#include "json_members.h"

namespace gannet::exported {
namespace {

using c10::IValue;
using c10::TypeKind;
using Kind = Argument::Kind;

[[noreturn]] void refuse_version(const std::string& where, const std::string& found, const std::string& torch_version) {
  throw Error(
      ErrorCode::kUnsupported,
      where + ": " + found + "; the graph was exported with PyTorch " + torch_version + ", and this is LibTorch " + TORCH_VERSION,
      "export it with the PyTorch of this LibTorch, or build Gannet with a newer LibTorch");
}

const c10::Type& without_optional(const c10::Type& type) {
  return type.kind() == TypeKind::OptionalType ? *type.containedType(0) : type;
}

Form form_of_element(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
      return Form::kTensors;
    case TypeKind::OptionalType:
      return type.containedType(0)->kind() == TypeKind::TensorType ? Form::kMaybeTensors : Form::kAny;
    case TypeKind::NumberType:
      return Form::kScalars;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return Form::kInts;
    case TypeKind::FloatType:
      return Form::kFloats;
    case TypeKind::BoolType:
      return Form::kBools;
    default:
      return Form::kAny;
  }
}

Form form_of(const c10::Argument& argument) {
  const c10::Type& type = without_optional(*argument.type());
  switch (type.kind()) {
    case TypeKind::TensorType:
      return Form::kTensor;
    case TypeKind::NumberType:
      return Form::kScalar;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return Form::kInt;
    case TypeKind::FloatType:
      return Form::kFloat;
    case TypeKind::BoolType:
      return Form::kBool;
    case TypeKind::StringType:
      return Form::kString;
    case TypeKind::DeviceObjType:
      return Form::kDevice;
    case TypeKind::ListType:
      return form_of_element(*type.containedType(0));
    default:
      return Form::kAny;
  }
}

bool is_list(Form form) { return form >= Form::kTensors; }
Form element_form(Form form) {
  switch (form) {
    case Form::kTensors:
    case Form::kMaybeTensors:
      return Form::kTensor;
    case Form::kScalars:
      return Form::kScalar;
    case Form::kInts:
      return Form::kInt;
    case Form::kFloats:
      return Form::kFloat;
    default:
      return Form::kBool;
  }
}

// Reads the arguments of one node.
class Maker {
 public:
  Maker(const SlotOf& slot_of, std::string where) : slot_of_(slot_of), where_(std::move(where)) {}

  Operand make(const Argument& argument, Form form, bool is_optional, const std::string& name) const {
    if (argument.kind == Kind::kNone) {
      if (!is_optional && form != Form::kAny) wrong(name, "None");
      return constant(IValue(), form);
    }
    if (argument.kind == Kind::kValue) {
      Operand operand{Operand::Kind::kValue, form, slot_of_(argument, where_), {}, {}};
      return operand;
    }
    if (argument.kind == Kind::kDevice) {
      if (form != Form::kDevice) wrong(name, "a device");
      return {Operand::Kind::kDevice, form, 0, {}, {}};
    }
    return is_list(form) ? make_list(argument, form, name) : make_one(argument, form, name);
  }

 private:
  static Operand constant(IValue value, Form form) { return {Operand::Kind::kConstant, form, 0, std::move(value), {}}; }
  [[noreturn]] void wrong(const std::string& name, const std::string& found) const {
    refuse_file(where_, "the argument '" + name + "' is " + found + ", which the operator does not take there");
  }

  Operand make_one(const Argument& argument, Form form, const std::string& name) const;
  Operand make_list(const Argument& argument, Form form, const std::string& name) const;
  IValue enumerator(const Argument& argument, const std::string& name) const;

  const SlotOf& slot_of_;
  std::string where_;
};

// Schemas represent dtypes, layouts and memory formats as integers.
IValue Maker::enumerator(const Argument& argument, const std::string& name) const {
  if (argument.kind == Kind::kDtype)
    if (const auto found = dtype_named(argument.text)) return static_cast<int64_t>(*found);
  if (argument.kind == Kind::kLayout)
    if (const auto found = layout_named(argument.text)) return static_cast<int64_t>(*found);
  if (argument.kind == Kind::kMemoryFormat)
    if (const auto found = memory_format_named(argument.text)) return static_cast<int64_t>(*found);
  wrong(name, "'" + argument.text + "'");
}

Operand Maker::make_one(const Argument& argument, Form form, const std::string& name) const {
  const bool is_number = argument.kind == Kind::kInt || argument.kind == Kind::kFloat || argument.kind == Kind::kBool;
  const IValue number = argument.kind == Kind::kFloat  ? IValue(argument.real)
                        : argument.kind == Kind::kBool ? IValue(argument.integer != 0)
                                                       : IValue(argument.integer);
  if (form == Form::kTensor && is_number) return constant(wrapped_number(number), form);
  if (form == Form::kScalar && is_number) return constant(number, form);
  if (form == Form::kInt && argument.kind == Kind::kInt) return constant(number, form);
  if (form == Form::kInt && argument.kind == Kind::kBool) return constant(argument.integer, form);
  if (form == Form::kInt &&
      (argument.kind == Kind::kDtype || argument.kind == Kind::kLayout || argument.kind == Kind::kMemoryFormat))
    return constant(enumerator(argument, name), form);
  if (form == Form::kFloat && argument.kind == Kind::kFloat) return constant(number, form);
  if (form == Form::kFloat && argument.kind == Kind::kInt) return constant(static_cast<double>(argument.integer), form);
  if (form == Form::kBool && argument.kind == Kind::kBool) return constant(number, form);
  if (form == Form::kString && argument.kind == Kind::kString) return constant(argument.text, form);
  if (form == Form::kAny && is_number) return constant(number, form);
  if (form == Form::kAny && argument.kind == Kind::kString) return constant(argument.text, form);
  if (form == Form::kAny && argument.kind == Kind::kList) return make_list(argument, Form::kInts, name);
  wrong(name, is_number                        ? "a number"
              : argument.kind == Kind::kString ? "a string"
              : argument.kind == Kind::kList   ? "a list"
              : argument.kind == Kind::kGraph  ? "a graph"
                                               : "'" + argument.text + "'");
}

Operand Maker::make_list(const Argument& argument, Form form, const std::string& name) const {
  if (argument.kind != Kind::kList) wrong(name, "no list");
  Operand operand{Operand::Kind::kList, form, 0, {}, {}};
  for (const Argument& one : argument.list) {
    if (one.kind == Kind::kNone && form != Form::kMaybeTensors) wrong(name, "a list with None");
    operand.list.push_back(make(one, element_form(form), form == Form::kMaybeTensors, name));
  }
  const bool is_constant = std::all_of(operand.list.begin(), operand.list.end(),
                                       [](const Operand& one) { return one.kind == Operand::Kind::kConstant; });
  if (is_constant && form == Form::kInts) {
    std::vector<int64_t> numbers;
    for (const Operand& one : operand.list) numbers.push_back(one.constant.toInt());
    return constant(std::move(numbers), form);
  }
  return operand;
}

// `int[2] stride` also accepts a single number, which applies to both dimensions.
Argument repeated(const Argument& argument, int32_t count) {
  Argument list;
  list.kind = Kind::kList;
  list.list.assign(static_cast<size_t>(count), argument);
  return list;
}

bool makes_tensor_of_nothing(const c10::FunctionSchema& schema) {
  return std::none_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& one) {
    const Form form = form_of(one);
    return form == Form::kTensor || form == Form::kTensors || form == Form::kMaybeTensors;
  });
}

}  // namespace

at::Tensor wrapped_number(const IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::OperatorHandle find_operator(const Node& node, const std::string& where, const std::string& torch_version) {
  const size_t first = node.op.find('.'), second = node.op.find('.', first == std::string::npos ? first : first + 1);
  const std::string space = node.op.substr(0, first);
  if (second == std::string::npos || node.op.find('.', second + 1) != std::string::npos)
    refuse_file(where, "'" + node.op + "' is not an operator: those of LibTorch are written aten.NAME.OVERLOAD");
  const std::string name = node.op.substr(first + 1, second - first - 1), overload = node.op.substr(second + 1);
  if (space != "aten")
    throw Error(ErrorCode::kUnsupported, where + ": the operator " + node.op + " belongs to another library than LibTorch",
                "export the model with only PyTorch's operators");
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload == "default" ? "" : overload});
  if (!is_allowed(name))
    throw Error(ErrorCode::kUnsupported,
                where + ": the operator " + node.op + (found ? " is not among those that a graph may call" : " does not exist"),
                "a graph computes from tensors and does nothing else; write that line of the model with other operators");
  if (!found) refuse_version(where, "there is no operator " + node.op, torch_version);
  return *found;
}

std::vector<Operand> operands_of(const Node& node, const c10::FunctionSchema& schema, const SlotOf& slot_of,
                                 const std::string& where, const std::string& torch_version) {
  const auto& wanted = schema.arguments();
  if (node.arguments.size() > wanted.size())
    refuse_version(
        where,
        std::to_string(node.arguments.size()) + " arguments for " + node.op + ", which has " + std::to_string(wanted.size()),
        torch_version);
  for (const auto& [key, argument] : node.keywords) {
    const auto at =
        std::find_if(wanted.begin(), wanted.end(), [&, &name = key](const c10::Argument& one) { return one.name() == name; });
    if (at == wanted.end()) refuse_version(where, "the operator " + node.op + " has no argument '" + key + "'", torch_version);
    if (static_cast<size_t>(at - wanted.begin()) < node.arguments.size())
      refuse_file(where, "the argument '" + key + "' is given twice");
  }
  const Maker maker(slot_of, where);
  std::vector<Operand> operands;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const c10::Argument& one = wanted[i];
    if (one.is_out()) refuse_file(where, "the operator " + node.op + " writes into a tensor that is given to it");
    const Argument* given = i < node.arguments.size() ? &node.arguments[i] : nullptr;
    for (const auto& [key, argument] : node.keywords)
      if (key == one.name()) given = &argument;
    const Form form = form_of(one);
    const bool is_optional = one.type()->kind() == TypeKind::OptionalType;
    // A factory operator, which has no tensor operand, creates its result on the module's device
    // unless the graph says otherwise.
    if (form == Form::kDevice && (!given || given->kind == Kind::kNone) && makes_tensor_of_nothing(schema)) {
      operands.push_back({Operand::Kind::kDevice, form, 0, {}, {}});
    } else if (!given) {
      if (!one.default_value()) refuse_file(where, "the argument '" + one.name() + "' of " + node.op + " is missing");
      operands.push_back({Operand::Kind::kConstant, form, 0, *one.default_value(), {}});
    } else if (is_list(form) && one.N() && *one.N() > 0 && *one.N() <= 8 && given->kind != Kind::kList &&
               given->kind != Kind::kValue && given->kind != Kind::kNone) {
      operands.push_back(maker.make(repeated(*given, *one.N()), form, is_optional, one.name()));
    } else {
      operands.push_back(maker.make(*given, form, is_optional, one.name()));
    }
  }
  return operands;
}

Operand plain_operand(const Argument& argument, const SlotOf& slot_of, const std::string& where) {
  return Maker(slot_of, where).make(argument, Form::kAny, true, "operand");
}

}  // namespace gannet::exported
