// Compares a folder's results with those that its exporter recorded.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <gannet/error.h>
#include <gannet/exported.h>
#include <gannet/safetensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/bounded_json.h"
#include "dtype_names.h"
#include "json_members.h"
#include "model_type.h"

namespace gannet {
namespace {

constexpr double kTolerance = 1e-5, kHalfTolerance = 2e-2;

// Sets one thread for the scope, and restores the random state and the number of threads at its
// end.
class Quiet {
 public:
  Quiet() : threads_(at::get_num_threads()), generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {
    at::set_num_threads(1);
  }
  ~Quiet() {
    at::set_num_threads(threads_);
    generator_.set_state(state_);
  }
  Quiet(const Quiet&) = delete;
  void seed(uint64_t seed) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_current_seed(seed);
  }

 private:
  int threads_;
  at::Generator generator_;
  at::Tensor state_;
};

double number(const Value& object, const std::string& key, const std::string& where) {
  const Value& found = exported::member(object, key.c_str(), where);
  if (!found.is_number()) exported::refuse_file(where, "'" + key + "' is not a number");
  return found.as_number();
}

// The difference relative to `there`, or to a tenth of `scale` if that is larger. A gradient that
// is zero apart from rounding, such as that of the bias of attention's keys, has a norm that is
// noise.
double distance(double there, double here, double scale) {
  if (std::isnan(there) || std::isnan(here)) return std::isnan(there) && std::isnan(here) ? 0 : INFINITY;
  return there == here ? 0 : std::abs(here - there) / std::max(std::abs(there), scale / 10);
}

NamedBatch batch_of(const std::string& folder, at::ScalarType dtype) {
  NamedBatch batch;
  for (auto& [name, tensor] : load_safetensors(folder + "/probe.safetensors"))
    batch[name] = tensor.scalar_type() == at::kFloat ? tensor.to(dtype) : tensor;
  return batch;
}

void compare_gradients(ExportedModule& module, const at::Tensor& loss, const Value& norms, const std::string& where,
                       ExportedCheck::Row& row) {
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  for (const auto& entry : module.named_parameters())
    if (entry.value().requires_grad()) {
      names.push_back(entry.key());
      parameters.push_back(entry.value());
    }
  const auto grads = torch::autograd::grad({loss}, parameters, {}, std::nullopt, false, /*allow_unused=*/true);
  double worst = -1, total = 0;
  for (const auto& [name, norm] : norms.as_dict().entries()) total += std::pow(number(norms, name, where), 2);
  for (size_t i = 0; i < grads.size(); ++i) {
    const Value* there = norms.as_dict().find(names[i]);
    // torch.cond gives zeros to the parameters of the branch that was not taken, and here they have no gradient.
    if (there && !grads[i].defined() && number(norms, names[i], where) == 0) continue;
    if ((there != nullptr) != grads[i].defined())
      exported::refuse_file(
          where, "'" + names[i] + "' has " + (there ? "a gradient there and none here" : "a gradient here and none there"));
    if (!there) continue;
    const double norm = at::linalg_vector_norm(grads[i].to(at::kDouble)).item<double>(), wanted = number(norms, names[i], where);
    ++row.gradients;
    row.is_bit_equal &= norm == wanted;
    if (const double far = distance(wanted, norm, std::sqrt(total)); far > worst) {
      worst = row.worst_distance = far;
      row.worst = names[i];
      row.worst_there = wanted;
      row.worst_here = norm;
    }
  }
}

ExportedCheck::Row check_graph(const std::string& folder, const std::string& graph, const Value& result, int64_t seed) {
  const std::string where = folder + "/probe.json: " + graph;
  const bool is_half = graph.ends_with(".bf16");
  const auto model = from_pretrained<ExportedModule>(folder, {.dtype = is_half ? "bfloat16" : "float32"});
  model->train(graph.starts_with("train."));
  Quiet quiet;
  quiet.seed(static_cast<uint64_t>(seed));
  const at::Tensor loss = model->forward(batch_of(folder, is_half ? at::kBFloat16 : at::kFloat));
  ExportedCheck::Row row;
  row.graph = graph;
  row.loss_there = number(result, "loss", where);
  row.loss_here = loss.detach().to(at::kDouble).item<double>();
  row.is_bit_equal = row.loss_here == row.loss_there;
  const Value& norms = exported::member(result, "gradient_norms", where);
  if (!norms.is_dict()) exported::refuse_file(where, "'gradient_norms' is not an object");
  compare_gradients(*model, loss, norms, where, row);
  const double tolerance = is_half ? kHalfTolerance : kTolerance;
  row.agrees = distance(row.loss_there, row.loss_here, 0) <= tolerance && row.worst_distance <= tolerance;
  return row;
}

}  // namespace

bool ExportedCheck::agrees() const {
  for (const Row& row : rows)
    if (!row.agrees) return false;
  return !rows.empty();
}

ExportedCheck check_exported(const std::string& folder) {
  detail::refuse_other_folder(folder);
  exported::require_exported(ModelConfig::read(folder));
  const std::string path = folder + "/probe.json";
  if (!std::filesystem::exists(path))
    throw Error(ErrorCode::kNotFound, "there is no " + path + ", so that there is nothing to compare with",
                "an archive that was converted has none; export the model by python -m gannet_export MODULE:FUNCTION");
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Value probe = common::parse_bounded_json(text, path, {.members = size_t{1} << 16});
  const Value& results = exported::member(probe, "results", path);
  if (!results.is_dict()) exported::refuse_file(path, "'results' is not an object");
  ExportedCheck check;
  for (const auto& [graph, result] : results.as_dict().entries())
    check.rows.push_back(check_graph(folder, graph, result, exported::integer(probe, "seed", path)));
  return check;
}

}  // namespace gannet
