#include "run.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <gannet/error.h>

#include <exception>
#include <new>
#include <utility>

#include "describe.h"
#include "operands.h"

namespace gannet::exported {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

// Sets autocast as Python's `with torch.autocast(...)` does.
class AutocastGuard {
 public:
  AutocastGuard(c10::DeviceType device, at::ScalarType dtype, bool is_enabled, bool is_cached)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        former_dtype_(at::autocast::get_autocast_dtype(device)),
        was_cached_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(device, is_enabled);
    at::autocast::set_autocast_dtype(device, dtype);
    at::autocast::increment_nesting();
    at::autocast::set_autocast_cache_enabled(is_cached);
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, former_dtype_);
    at::autocast::set_autocast_cache_enabled(was_cached_);
  }
  AutocastGuard(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType former_dtype_;
  bool was_cached_;
};

constexpr size_t kMostIdle = 8;

std::vector<Values>& idle_vectors() {
  static thread_local std::vector<Values> idle = [] {
    std::vector<Values> none;
    none.reserve(kMostIdle);
    return none;
  }();
  return idle;
}

// A vector of take_values() for a scope.
class Scoped {
 public:
  explicit Scoped(Values values = take_values()) : values_(std::move(values)) {}
  ~Scoped() { give_back(std::move(values_)); }
  Scoped(const Scoped&) = delete;
  Values& operator*() { return values_; }
  Values* operator->() { return &values_; }
  Values release() { return std::move(values_); }

 private:
  Values values_;
};

class Run {
 public:
  Run(const Program& program, c10::Device device) : program_(program), device_(device) {}

  // The outputs of a routine. `values`: its inputs.
  Values call(const Routine& routine, Values inputs) {
    Scoped slots(std::move(inputs)), scoped_stack;
    Values &values = *slots, &stack = *scoped_stack;
    values.resize(routine.slots);
    for (const Step& step : routine.steps) {
      try {
        stack.clear();
        for (const Operand& one : step.operands) push(one, values, stack);
        execute(step, stack);
        for (size_t i = 0; i < step.results; ++i) values[step.first_result + i] = std::move(stack[i]);
      } catch (const std::exception&) {
        throw_with_step(step, values);
      }
      for (const size_t slot : step.ends) values[slot] = IValue();
    }
    stack.clear();
    for (const Operand& one : routine.outputs) push(one, values, stack);
    return scoped_stack.release();
  }

 private:
  void push(const Operand& operand, const Values& values, Values& stack) const;
  IValue value_of(const Operand& operand, const Values& values) const;
  IValue list_of(const Operand& operand, const Values& values) const;
  void execute(const Step& step, Values& stack);
  void execute_nested(const Step& step, Values& stack);
  [[noreturn]] void throw_with_step(const Step& step, const Values& values) const;

  const Program& program_;
  c10::Device device_;
};

// Converts a number of the graph to the type that the operator takes there, as in a call from
// Python.
IValue in_form(const IValue& value, Form form) {
  switch (form) {
    case Form::kTensor:
      return value.isTensor() || !value.isScalar() ? value : IValue(wrapped_number(value));
    case Form::kFloat:
      return value.isInt() ? IValue(static_cast<double>(value.toInt())) : value;
    case Form::kInt:
      return value.isBool() ? IValue(static_cast<int64_t>(value.toBool())) : value;
    default:
      return value;
  }
}

bool fits(const IValue& value, Form form) {
  switch (form) {
    case Form::kTensor:
      return value.isTensor() || value.isNone();
    case Form::kScalar:
      return value.isScalar() || value.isNone();
    case Form::kInt:
      return value.isInt() || value.isNone();
    case Form::kFloat:
      return value.isDouble() || value.isNone();
    case Form::kBool:
      return value.isBool() || value.isNone();
    case Form::kTensors:
      return value.isTensorList();
    case Form::kInts:
      return value.isIntList();
    default:
      return true;
  }
}

// As value_of, without copies of values that need no conversion.
void Run::push(const Operand& operand, const Values& values, Values& stack) const {
  if (operand.kind == Operand::Kind::kConstant)
    stack.push_back(operand.constant);
  else if (operand.kind == Operand::Kind::kValue && fits(values[operand.slot], operand.form))
    stack.push_back(values[operand.slot]);
  else
    stack.push_back(value_of(operand, values));
}

IValue Run::value_of(const Operand& operand, const Values& values) const {
  switch (operand.kind) {
    case Operand::Kind::kConstant:
      return operand.constant;
    case Operand::Kind::kDevice:
      return device_;
    case Operand::Kind::kList:
      return list_of(operand, values);
    default: {
      IValue value = in_form(values[operand.slot], operand.form);
      if (!fits(value, operand.form)) throw Error(ErrorCode::kArgument, "an argument is a value of type " + value.tagKind());
      return value;
    }
  }
}

IValue Run::list_of(const Operand& operand, const Values& values) const {
  const auto filled = [&](auto list, auto convert) -> IValue {
    list.reserve(operand.list.size());
    for (const Operand& one : operand.list) list.push_back(convert(value_of(one, values)));
    return list;
  };
  switch (operand.form) {
    case Form::kTensors:
      return filled(c10::List<at::Tensor>(), [](const IValue& value) { return value.toTensor(); });
    case Form::kMaybeTensors:
      return filled(c10::List<std::optional<at::Tensor>>(), [](const IValue& value) { return value.toOptional<at::Tensor>(); });
    case Form::kInts:
      return filled(c10::List<int64_t>(), [](const IValue& value) { return value.toInt(); });
    case Form::kFloats:
      return filled(c10::List<double>(), [](const IValue& value) { return value.toDouble(); });
    case Form::kBools:
      return filled(c10::List<bool>(), [](const IValue& value) { return value.toBool(); });
    default:
      return filled(c10::List<at::Scalar>(), [](const IValue& value) { return value.toScalar(); });
  }
}

void replace(Values& stack, IValue result) {
  stack.clear();
  stack.push_back(std::move(result));
}

void replace(Values& stack, Values results) {
  stack.swap(results);
  give_back(std::move(results));
}

void Run::execute(const Step& step, Values& stack) {
  switch (step.kind) {
    case Step::Kind::kOperator:
      step.op->callBoxed(&stack);
      break;
    case Step::Kind::kPython:
      replace(stack, step.python(stack));
      break;
    case Step::Kind::kGetItem:
      if (!stack[1].isInt()) throw Error(ErrorCode::kArgument, "an index is not an integer");
      replace(stack, element_of(stack[0], stack[1].toInt()));
      break;
    default:
      execute_nested(step, stack);
  }
  if (stack.size() != step.results)
    throw Error(ErrorCode::kInternal,
                std::to_string(stack.size()) + " results, and " + std::to_string(step.results) + " are declared");
}

bool is_true(const IValue& value) {
  if (value.isTensor()) return value.toTensor().is_nonzero();
  if (!value.isBool()) throw Error(ErrorCode::kArgument, "a condition is neither a boolean nor a tensor of one");
  return value.toBool();
}

void Run::execute_nested(const Step& step, Values& stack) {
  const auto& arguments = step.node->arguments;
  if (step.kind == Step::Kind::kCond) {
    const size_t routine = step.routines[is_true(stack[0]) ? 0 : 1];
    stack.erase(stack.begin());
    replace(stack, call(program_.routines()[routine], std::move(stack)));
    return;
  }
  const Routine& routine = program_.routines()[step.routines[0]];
  if (step.kind == Step::Kind::kGradMode) {
    const c10::AutoGradMode mode(arguments[0].integer != 0);
    replace(stack, call(routine, std::move(stack)));
    return;
  }
  const auto dtype =
      arguments[1].kind == Argument::Kind::kDtype ? dtype_of(arguments[1]) : at::autocast::get_autocast_dtype(device_.type());
  const AutocastGuard autocast(device_.type(), dtype, arguments[2].integer != 0, arguments[3].integer != 0);
  replace(stack, call(routine, std::move(stack)));
}

// Errors about memory, the device or an absent parameter are explained by the engine, which knows
// the run's config.
bool is_for_engine(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const c10::AcceleratorError*>(&error) ||
         error_of(error) || std::string(error.what_without_backtrace()).find("DefaultCPUAllocator") != std::string::npos;
}

// For use within a catch block. The innermost step adds its name; an error that already names a
// step passes unchanged.
void Run::throw_with_step(const Step& step, const Values& values) const {
  try {
    throw;
  } catch (const Error& error) {
    if (!error.next_step().empty() || error.code() != ErrorCode::kArgument) throw;
    throw failed(program_, step, error.message(), values);
  } catch (const c10::Error& error) {
    if (is_for_engine(error)) throw;
    const std::string text = error.what_without_backtrace();
    throw failed(program_, step, text.substr(0, text.find('\n')), values);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw failed(program_, step, text.substr(0, text.find('\n')), values);
  }
}

}  // namespace

Values take_values() {
  std::vector<Values>& idle = idle_vectors();
  if (idle.empty()) return {};
  Values values = std::move(idle.back());
  idle.pop_back();
  return values;
}

void give_back(Values values) {
  values.clear();
  std::vector<Values>& idle = idle_vectors();
  if (values.capacity() > 0 && idle.size() < kMostIdle) idle.push_back(std::move(values));
}

Values run_routine(const Program& program, const Routine& routine, Values inputs, c10::Device device) {
  return Run(program, device).call(routine, std::move(inputs));
}

void require_loss(const Program& program, const at::Tensor& loss) {
  if (!loss.defined() || loss.dim() != 0)
    throw Error(ErrorCode::kArgument, program.file().path + ": the model's output is not a scalar tensor, and a loss is one",
                "export a model whose forward returns a scalar loss");
}

at::Tensor run(const Program& program, Values inputs, c10::Device device) {
  Values outputs = run_routine(program, program.routines().back(), std::move(inputs), device);
  const at::Tensor loss = outputs[0].isTensor() ? std::move(outputs[0]).toTensor() : at::Tensor();
  give_back(std::move(outputs));
  require_loss(program, loss);
  return loss;
}

}  // namespace gannet::exported
