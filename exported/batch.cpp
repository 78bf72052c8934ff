#include "batch.h"

#include <ATen/core/Tensor.h>
#include <gannet/error.h>

#include <algorithm>

#include "common/nearest.h"
#include "describe.h"
#include "dtype_names.h"

namespace gannet::exported {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& next) { throw Error(ErrorCode::kArgument, what, next); }

std::vector<std::string> names_of(const std::vector<Input>& inputs) {
  std::vector<std::string> names;
  for (const Input& one : inputs) names.push_back(one.name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void require_names(const GraphFile& file, const NamedBatch& batch) {
  const std::vector<std::string> names = names_of(file.inputs);
  for (const std::string& name : names)
    if (!batch.contains(name)) refuse("the batch has no '" + name + "'", "the model takes " + joined(names));
  for (const auto& [name, tensor] : batch)
    if (std::find(names.begin(), names.end(), name) == names.end())
      refuse("the batch has '" + name + "', which the model does not take" + common::did_you_mean(name, names),
             "the model takes " + joined(names));
}

void require_kind(const GraphFile& file, const Input& input, const at::Tensor& tensor, c10::Device device) {
  const std::string what = "input '" + input.name + "' is " + describe(tensor);
  const std::string wanted =
      ", and the graph " + file.mode + "." + file.dtype + " takes " + input.dtype + shape_text(file, input);
  if (!tensor.defined()) refuse(what + wanted, "put a tensor into the batch");
  if (name_of(tensor.scalar_type()) != input.dtype)
    refuse(what + wanted, tensor.is_floating_point() && (input.dtype == "bfloat16" || input.dtype == "float32")
                              ? "inputs of floating point have the dtype of the parameters: batch[\"" + input.name +
                                    "\"].to(at::" + (input.dtype == "float32" ? "kFloat" : "kBFloat16") + ")"
                              : "convert the data, or export the model with an example of this dtype");
  if (tensor.dim() != static_cast<int64_t>(input.shape.size()))
    refuse(what + wanted, "give a tensor of " + std::to_string(input.shape.size()) + " dimensions");
  if (tensor.device() != device)
    refuse("input '" + input.name + "' is on " + tensor.device().str() + ", and the parameters are on " + device.str(),
           "move the batch by gannet::to_device");
}

// The value of each symbol, and where it was read: "input_ids.size(1)".
struct SymbolValues {
  std::vector<int64_t> values;
  std::vector<std::string> names;
};

SymbolValues symbols_of(const GraphFile& file, const NamedBatch& batch) {
  SymbolValues found{std::vector<int64_t>(file.symbols.size()), std::vector<std::string>(file.symbols.size())};
  for (const Input& input : file.inputs)
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      if (input.shape[dim].op != Size::Op::kSymbol) continue;
      const auto symbol = static_cast<size_t>(input.shape[dim].number);
      if (!found.names[symbol].empty()) continue;
      found.values[symbol] = batch.at(input.name).size(static_cast<int64_t>(dim));
      found.names[symbol] = input.name + ".size(" + std::to_string(dim) + ")";
    }
  return found;
}

void require_sizes(const Input& input, const at::Tensor& tensor, const SymbolValues& found) {
  for (size_t dim = 0; dim < input.shape.size(); ++dim) {
    const int64_t size = tensor.size(static_cast<int64_t>(dim));
    if (evaluate(input.shape[dim], found.values) == size) continue;
    const std::string what =
        "input '" + input.name + "' is " + describe(tensor) + ": its dimension " + std::to_string(dim) + " is ";
    if (input.shape[dim].op == Size::Op::kNumber)
      refuse(what + std::to_string(size) + ", and became constant in the export: " + std::to_string(input.shape[dim].number),
             "give this size, or export with a model that does not fix it");
    refuse(what + std::to_string(size) + ", and is to be " + to_text(input.shape[dim], found.names),
           "the sizes of a batch depend on each other");
  }
}

void require_ranges(const GraphFile& file, const SymbolValues& found) {
  for (size_t i = 0; i < file.symbols.size(); ++i) {
    const Symbol& symbol = file.symbols[i];
    if (found.values[i] < symbol.min)
      refuse(found.names[i] + " is " + std::to_string(found.values[i]) + ", and the graph takes at least " +
                 std::to_string(symbol.min),
             symbol.min == 2 ? "PyTorch's export excludes the sizes 0 and 1, whose meaning in operators differs from others'"
                             : "give a larger size");
    if (symbol.max && found.values[i] > *symbol.max)
      refuse(found.names[i] + " is " + std::to_string(found.values[i]) + ", and the graph takes at most " +
                 std::to_string(*symbol.max),
             "cut the data to this size");
  }
}

}  // namespace

void require_batch(const GraphFile& file, const NamedBatch& batch, c10::Device device) {
  require_names(file, batch);
  for (const Input& input : file.inputs) require_kind(file, input, batch.at(input.name), device);
  const SymbolValues found = symbols_of(file, batch);
  for (const Input& input : file.inputs) require_sizes(input, batch.at(input.name), found);
  require_ranges(file, found);
  for (const Relation& relation : file.relations) {
    if (holds(relation, found.values)) continue;
    std::string sizes;
    for (size_t i = 0; i < found.names.size(); ++i)
      sizes += (sizes.empty() ? "" : ", ") + found.names[i] + " = " + std::to_string(found.values[i]);
    refuse(
        "the batch has other sizes than the export allows: " + to_text(relation, found.names) + " does not hold, with " + sizes,
        "the model's code branched on these sizes; give sizes that keep the relation, or export with an example of them");
  }
}

std::string shape_text(const GraphFile& file, const Input& input) {
  std::vector<std::string> names;
  for (const Symbol& symbol : file.symbols) names.push_back(symbol.name);
  std::string text;
  for (const Size& size : input.shape) {
    text += (text.empty() ? "" : ", ") + to_text(size, names);
    if (size.op != Size::Op::kSymbol) continue;
    const Symbol& symbol = file.symbols[static_cast<size_t>(size.number)];
    if (symbol.max) text += " <= " + std::to_string(*symbol.max);
  }
  return "[" + text + "]";
}

}  // namespace gannet::exported
