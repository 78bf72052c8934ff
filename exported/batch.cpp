#include "batch.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <gannet/error.h>

#include <algorithm>
#include <utility>

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
  for (const Input& one : file.inputs)
    if (!batch.contains(one.name))
      refuse("the batch has no '" + one.name + "'", "the model takes " + joined(names_of(file.inputs)));
  if (batch.size() == file.inputs.size()) return;
  const std::vector<std::string> names = names_of(file.inputs);
  for (const auto& [name, tensor] : batch)
    if (std::find(names.begin(), names.end(), name) == names.end())
      refuse("the batch has '" + name + "', which the model does not take" + common::did_you_mean(name, names),
             "the model takes " + joined(names));
}

void require_kind(const GraphFile& file, const Input& input, const at::Tensor& tensor, c10::Device device) {
  const auto mismatch = [&] {
    return "input '" + input.name + "' is " + describe(tensor) + ", and the graph " + file.mode + "." + file.dtype + " takes " +
           input.dtype + shape_text(file, input);
  };
  if (!tensor.defined()) refuse(mismatch(), "put a tensor into the batch");
  if (name_of(tensor.scalar_type()) != input.dtype)
    refuse(mismatch(), tensor.is_floating_point() && (input.dtype == "bfloat16" || input.dtype == "float32")
                           ? "inputs of floating point have the dtype of the parameters: batch[\"" + input.name +
                                 "\"].to(at::" + (input.dtype == "float32" ? "kFloat" : "kBFloat16") + ")"
                           : "convert the data, or export the model with an example of this dtype");
  if (tensor.dim() != static_cast<int64_t>(input.shape.size()))
    refuse(mismatch(), "give a tensor of " + std::to_string(input.shape.size()) + " dimensions");
  if (tensor.device() != device)
    refuse("input '" + input.name + "' is on " + tensor.device().str() + ", and the parameters are on " + device.str(),
           "move the batch by gannet::to_device");
}

// The value of each symbol.
using SymbolValues = c10::SmallVector<int64_t, 16>;

// Visits the first size of an input that is each symbol.
template <class Visit>
void visit_symbols(const GraphFile& file, const Visit& visit) {
  c10::SmallVector<bool, 16> is_found(file.symbols.size(), false);
  for (const Input& input : file.inputs)
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      if (input.shape[dim].op != Size::Op::kSymbol) continue;
      const auto symbol = static_cast<size_t>(input.shape[dim].number);
      if (!std::exchange(is_found[symbol], true)) visit(symbol, input, static_cast<int64_t>(dim));
    }
}

SymbolValues symbols_of(const GraphFile& file, const NamedBatch& batch) {
  SymbolValues values(file.symbols.size(), 0);
  visit_symbols(file, [&](size_t symbol, const Input& input, int64_t dim) { values[symbol] = batch.at(input.name).size(dim); });
  return values;
}

// Where each symbol is read, for messages: "input_ids.size(1)".
std::vector<std::string> places_of(const GraphFile& file) {
  std::vector<std::string> places(file.symbols.size());
  visit_symbols(file, [&](size_t symbol, const Input& input, int64_t dim) {
    places[symbol] = input.name + ".size(" + std::to_string(dim) + ")";
  });
  return places;
}

void require_sizes(const GraphFile& file, const Input& input, const at::Tensor& tensor, const SymbolValues& values) {
  for (size_t dim = 0; dim < input.shape.size(); ++dim) {
    const int64_t size = tensor.size(static_cast<int64_t>(dim));
    if (evaluate(input.shape[dim], values) == size) continue;
    const std::string what =
        "input '" + input.name + "' is " + describe(tensor) + ": its dimension " + std::to_string(dim) + " is ";
    if (input.shape[dim].op == Size::Op::kNumber)
      refuse(what + std::to_string(size) + ", and became constant in the export: " + std::to_string(input.shape[dim].number),
             "give this size, or export with a model that does not fix it");
    refuse(what + std::to_string(size) + ", and is to be " + to_text(input.shape[dim], places_of(file)),
           "the sizes of a batch depend on each other");
  }
}

void require_ranges(const GraphFile& file, const SymbolValues& values) {
  for (size_t i = 0; i < file.symbols.size(); ++i) {
    const Symbol& symbol = file.symbols[i];
    if (values[i] < symbol.min)
      refuse(places_of(file)[i] + " is " + std::to_string(values[i]) + ", and the graph takes at least " +
                 std::to_string(symbol.min),
             symbol.min == 2
                 ? "PyTorch's export excludes the sizes 0 and 1; where this is the last batch of the data, choose another "
                   "batch size or number of samples, or drop it from the training (--dataloader_drop_last)"
                 : "give a larger size");
    if (symbol.max && values[i] > *symbol.max)
      refuse(places_of(file)[i] + " is " + std::to_string(values[i]) + ", and the graph takes at most " +
                 std::to_string(*symbol.max),
             "cut the data to this size");
  }
}

}  // namespace

void require_batch(const GraphFile& file, const NamedBatch& batch, c10::Device device) {
  require_names(file, batch);
  for (const Input& input : file.inputs) require_kind(file, input, batch.at(input.name), device);
  const SymbolValues values = symbols_of(file, batch);
  for (const Input& input : file.inputs) require_sizes(file, input, batch.at(input.name), values);
  require_ranges(file, values);
  for (const Relation& relation : file.relations) {
    if (holds(relation, values)) continue;
    const std::vector<std::string> places = places_of(file);
    std::string sizes;
    for (size_t i = 0; i < places.size(); ++i)
      sizes += (sizes.empty() ? "" : ", ") + places[i] + " = " + std::to_string(values[i]);
    refuse("the batch has other sizes than the export allows: " + to_text(relation, places) + " does not hold, with " + sizes,
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
