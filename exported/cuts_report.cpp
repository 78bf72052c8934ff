// Reports the cuts between an exported model's layers and the values that cross them.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gannet/error.h>
#include <gannet/exported.h>
#include <gannet/pipe.h>
#include <gannet/safetensors.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "batch.h"
#include "dtype_names.h"
#include "layout.h"
#include "program.h"

namespace gannet {
namespace exported {
namespace {

// A batch, and the values of the graph's symbols.
struct SizedBatch {
  std::vector<int64_t> symbols;
  NamedBatch batch;
};

std::vector<int64_t> values_of_symbols(const GraphFile& file, const NamedBatch& batch) {
  std::vector<int64_t> values(file.symbols.size());
  for (const Input& input : file.inputs)
    for (size_t dim = 0; dim < input.shape.size(); ++dim)
      if (input.shape[dim].op == Size::Op::kSymbol)
        values[static_cast<size_t>(input.shape[dim].number)] = batch.at(input.name).size(static_cast<int64_t>(dim));
  return values;
}

bool is_taken(const GraphFile& file, const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < file.symbols[i].min || (file.symbols[i].max && values[i] > *file.symbols[i].max)) return false;
  return std::all_of(file.relations.begin(), file.relations.end(), [&](const Relation& one) { return holds(one, values); });
}

// Resizes the batch by repeating its rows and columns.
NamedBatch resized(const GraphFile& file, const NamedBatch& batch, const std::vector<int64_t>& values) {
  NamedBatch made;
  for (const Input& input : file.inputs) {
    at::Tensor tensor = batch.at(input.name);
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      const int64_t size = evaluate(input.shape[dim], values).value_or(0), former = tensor.size(static_cast<int64_t>(dim));
      if (size == former) continue;
      tensor = tensor.index_select(static_cast<int64_t>(dim), at::arange(size, at::kLong).remainder(former));
    }
    made[input.name] = tensor;
  }
  return made;
}

// The example batch, and batches in which all sizes of one value are enlarged by the same number:
// sizes that are equal in the example stay equal, which models often require.
std::vector<SizedBatch> other_sizes(const GraphFile& file, const NamedBatch& example) {
  const std::vector<int64_t> first = values_of_symbols(file, example);
  std::vector<SizedBatch> all = {{first, example}};
  std::vector<int64_t> different = first;
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  for (const int64_t scale : {1, 2, 4, 8}) {
    for (const int64_t shift : {3, 5}) {
      std::vector<int64_t> values = first;
      for (int64_t& value : values) {
        const auto place = std::find(different.begin(), different.end(), value) - different.begin();
        value += scale * (shift + 2 * static_cast<int64_t>(place));
      }
      if (!is_taken(file, values)) continue;
      all.push_back({values, resized(file, example, values)});
    }
    if (all.size() >= 3) break;
  }
  return all;
}

// Fits a dimension to the symbols: a number, a symbol, a symbol plus a number, or a product of two.
// `seen`: by batch.
std::string dim_text(const GraphFile& file, const std::vector<SizedBatch>& batches, const std::vector<int64_t>& seen) {
  if (std::all_of(seen.begin(), seen.end(), [&](int64_t one) { return one == seen[0]; })) return std::to_string(seen[0]);
  const auto fits = [&](const auto& compute) {
    for (size_t i = 0; i < seen.size(); ++i)
      if (compute(batches[i].symbols) != seen[i]) return false;
    return true;
  };
  const size_t count = file.symbols.size();
  const auto name = [&](size_t i) { return file.symbols[i].name; };
  for (size_t a = 0; a < count; ++a)
    if (fits([&](const auto& of) { return of[a]; })) return name(a);
  for (size_t a = 0; a < count; ++a) {
    const int64_t more = seen[0] - batches[0].symbols[a];
    if (fits([&](const auto& of) { return of[a] + more; }))
      return name(a) + (more > 0 ? " + " + std::to_string(more) : " - " + std::to_string(-more));
    const int64_t times = seen[0] / std::max<int64_t>(1, batches[0].symbols[a]);
    if (fits([&](const auto& of) { return of[a] * times; })) return name(a) + " * " + std::to_string(times);
    for (const int64_t parts : {2, 4, 8, 16, 32})
      for (const int64_t above : {int64_t{0}, parts - 1, int64_t{1}})
        if (fits([&](const auto& of) { return (of[a] + above) / parts; }))
          return above == 0 ? name(a) + " // " + std::to_string(parts)
                            : "(" + name(a) + " + " + std::to_string(above) + ") // " + std::to_string(parts);
  }
  for (size_t a = 0; a < count; ++a)
    for (size_t b = a; b < count; ++b)
      if (fits([&](const auto& of) { return of[a] * of[b]; })) return name(a) + " * " + name(b);
  return "?";
}

// The wires after each layer, for each batch.
std::vector<std::vector<Wire>> wires_of(const Layout& layout, const std::vector<SizedBatch>& batches) {
  std::vector<std::vector<Wire>> all;
  const c10::AutoGradMode no_grad(false);
  for (const SizedBatch& one : batches) {
    auto& wires = all.emplace_back();
    Wire wire;
    for (const std::string& name : layout.inputs().layers) wire.push_back(one.batch.at(name));
    for (const Layer& layer : layout.layers()) wires.push_back(wire = layer(wire));
  }
  return all;
}

std::string name_of_slot(const Program& program, size_t slot) {
  for (const Step& step : program.routines().back().steps)
    if (slot >= step.first_result && slot < step.first_result + step.results)
      return step.node->name + (step.results > 1 ? "." + std::to_string(slot - step.first_result) : "");
  return "?";
}

}  // namespace
}  // namespace exported

namespace {

using namespace exported;  // NOLINT(google-build-using-namespace): this file prints what exported finds

ExportedCut cut_after(const Program& program, const Layout& layout, size_t chosen, size_t layer,
                      const std::vector<SizedBatch>& batches, const std::vector<std::vector<Wire>>& wires) {
  const Segments& segments = layout.programs()[chosen];
  const bool is_last = layer + 1 == segments.layers.size();
  const Segment& next = is_last ? segments.loss : segments.layers[layer + 1];
  const Flow& flow = layout.flows()[chosen];
  ExportedCut cut;
  cut.layer = next.name;
  for (size_t s = next.first; s < next.last && cut.node.empty(); ++s)
    if (flow.is_fixed[s]) cut.node = program.routines().back().steps[s].node->name;
  const size_t count = wires[0][layer].size();
  for (size_t i = 0; i < count; ++i) {
    ExportedCut::Value& value = cut.values.emplace_back();
    value.is_input = i >= next.values.size();
    value.name = value.is_input ? next.inputs[i - next.values.size()] : name_of_slot(program, next.values[i]);
    const at::Tensor& example = wires[0][layer][i];
    value.dtype = name_of(example.scalar_type());
    value.bytes = static_cast<int64_t>(example.nbytes());
    std::string dims;
    for (int64_t dim = 0; dim < example.dim(); ++dim) {
      std::vector<int64_t> seen;
      for (const auto& of_batch : wires) seen.push_back(of_batch[layer][i].size(dim));
      dims += (dims.empty() ? "" : ", ") + dim_text(program.file(), batches, seen);
    }
    value.shape = "[" + dims + "]";
  }
  return cut;
}

// The fp32 training graph, if the folder has one.
size_t program_to_show(const ExportedConfig& config) {
  for (const char* name : {"train.fp32", "train.bf16", "eval.fp32"})
    for (size_t i = 0; i < config.programs.size(); ++i)
      if (config.programs[i]->name() == name) return i;
  return 0;
}

// The last layer of each group but the final one: the groups that number_checkpoints makes.
std::vector<bool> ends_of_groups(size_t layers, size_t groups) {
  groups = std::clamp<size_t>(groups, 1, layers);
  std::vector<bool> ends(layers);
  size_t next = 0;
  for (size_t g = 0; g < groups; ++g) {
    next += layers / groups + (g < layers % groups ? 1 : 0);
    ends[next - 1] = true;
  }
  return ends;
}

}  // namespace

ExportedCuts exported_cuts(const std::string& folder, std::optional<size_t> segments) {
  const std::string path = folder + "/probe.safetensors";
  detail::refuse_other_folder(folder);
  const ExportedConfig config = ExportedConfig::from(ModelConfig::read(folder), folder);
  if (!std::filesystem::exists(path))
    throw Error(ErrorCode::kNotFound, "there is no " + path + ", so that there is no batch to see shapes with",
                "an archive that was converted has none; export the model by python -m gannet_export MODULE:FUNCTION");
  const size_t chosen = program_to_show(config);
  const Program& program = *config.programs[chosen];
  const bool is_half = program.file().dtype == "bf16";
  const auto model = from_pretrained<ExportedModule>(folder, {.dtype = is_half ? "bfloat16" : "float32"});
  const Layout layout(*model, /*for_pipeline=*/false);
  model->train(program.file().mode == "train");
  NamedBatch example;
  for (auto& [name, tensor] : load_safetensors(path))
    example[name] = is_half && tensor.is_floating_point() ? tensor.to(at::kBFloat16) : tensor;
  require_batch(program.file(), example, at::kCPU);
  const std::vector<SizedBatch> batches = other_sizes(program.file(), example);
  const auto wires = wires_of(layout, batches);
  ExportedCuts found{program.name(), layout.layers().front().name(), {}};
  const std::vector<bool> ends = ends_of_groups(layout.layers().size(), segments.value_or(layout.layers().size()));
  for (size_t layer = 0; layer < ends.size(); ++layer)
    if (ends[layer]) found.cuts.push_back(cut_after(program, layout, chosen, layer, batches, wires));
  return found;
}

}  // namespace gannet
