// Converts the arguments of a node into operands, according to the operator's schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "program.h"

namespace gannet::exported {

// The slot that holds a value of the graph. Throws if the value has several results, which only
// getitem may select from.
using SlotOf = std::function<size_t(const Argument& value, const std::string& where)>;

// Finds "aten.add.Tensor". Throws Error(kUnsupported) if the operator is not allowed
// (allowed_operators.h) or unknown to this LibTorch; `torch_version` is the exporter's.
c10::OperatorHandle find_operator(const Node& node, const std::string& where, const std::string& torch_version);

// One operand for each argument of the schema, with defaults filled in. Throws Error(kUnsupported)
// for an argument that this LibTorch's schema lacks, and Error(kCorrupt) for one that is missing or
// of another type.
std::vector<Operand> operands_of(const Node& node, const c10::FunctionSchema& schema, const SlotOf& slot_of,
                                 const std::string& where, const std::string& torch_version);

// An operand of a Python operator or of a nested graph.
Operand plain_operand(const Argument& argument, const SlotOf& slot_of, const std::string& where);

// A Python number in place of a tensor: it takes part in type promotion as a number.
at::Tensor wrapped_number(const c10::IValue& number);

}  // namespace gannet::exported
