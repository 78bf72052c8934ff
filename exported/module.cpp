#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <gannet/error.h>
#include <gannet/exported.h>

#include <utility>

#include "batch.h"
#include "dtype_names.h"
#include "layout.h"
#include "module_tree.h"
#include "program.h"
#include "run.h"

namespace gannet {
namespace {

using exported::Placeholder;
using exported::Program;

}  // namespace

ExportedModule::ExportedModule(Config config) : torch::nn::Module("ExportedModule"), config_(std::move(config)) {
  register_tensors();
  for (const auto& program : config_.programs) {
    auto& given = given_.emplace_back();
    for (const Placeholder& one : program->file().placeholders) {
      const bool is_registered = one.kind == Placeholder::Kind::kParameter || one.kind == Placeholder::Kind::kBuffer;
      given.push_back(is_registered ? tensors_.at(one.target) : at::Tensor());
    }
  }
}

// Zeros; from_pretrained fills in the values. Floating-point tensors have the default dtype, which
// from_pretrained sets from its option.
void ExportedModule::register_tensors() {
  exported::ModuleTree tree(*this);
  const auto dtype_of = [](const ExportedTensor& one) {
    const at::ScalarType dtype = exported::dtype_named(one.dtype).value();
    return dtype == at::kFloat ? c10::get_default_dtype_as_scalartype() : dtype;
  };
  for (const ExportedTensor& one : config_.parameters) {
    const auto [module, name] = tree.place_of(one.name);
    const at::Tensor made = module->register_parameter(name, at::zeros(one.shape, dtype_of(one)), one.requires_grad);
    tensors_[one.name] = made;
    owners_[one.name] = tree.owner_of(one.name);
    if (!leading_.defined() && made.is_floating_point()) leading_ = made;
  }
  for (const ExportedTensor& one : config_.buffers) {
    const auto [module, name] = tree.place_of(one.name);
    tensors_[one.name] = module->register_buffer(name, at::zeros(one.shape, dtype_of(one)));
    owners_[one.name] = tree.owner_of(one.name);
  }
  if (!leading_.defined())
    throw Error(ErrorCode::kUnsupported, config_.folder + ": the model has no parameter of floating point",
                "there is nothing to train");
}

size_t ExportedModule::chosen_program(at::ScalarType dtype) const {
  const std::string mode = is_training() ? "train" : "eval";
  const std::string short_dtype = dtype == at::kFloat ? "fp32" : dtype == at::kBFloat16 ? "bf16" : "";
  for (size_t i = 0; i < config_.programs.size(); ++i)
    if (const auto& file = config_.programs[i]->file(); file.mode == mode && file.dtype == short_dtype) return i;
  bool has_dtype = false;
  std::string known;
  for (const auto& program : config_.programs) {
    has_dtype |= program->file().dtype == short_dtype;
    known += (known.empty() ? "" : ", ") + program->name();
  }
  const std::string there = "; there are " + known;
  if (has_dtype)
    throw Error(ErrorCode::kUnsupported,
                config_.folder + ": there is no " + mode + " graph, and the module is in " + mode + " mode" + there,
                "export with --modes train,eval, or call " + (is_training() ? std::string("eval()") : std::string("train()")) +
                    " before");
  throw Error(ErrorCode::kUnsupported,
              config_.folder + ": there is no graph for parameters of " + exported::name_of(dtype) + there,
              short_dtype == "bf16" ? "export with --dtypes fp32,bf16; or train the fp32 graph with \"torch_autocast\": "
                                      "{\"enabled\": true} in place of bf16"
                                    : "graphs are of fp32 and bf16; fp16 is for \"torch_autocast\": {\"enabled\": true, "
                                      "\"dtype\": \"fp16\"} over fp32 parameters");
}

// In the bf16 graph the buffers are bf16 as well, as after Module.to(torch.bfloat16).
void ExportedModule::require_buffers_of(at::ScalarType dtype) const {
  for (const ExportedTensor& one : config_.buffers) {
    const at::Tensor& buffer = tensors_.at(one.name);
    if (one.dtype == "float32" && buffer.scalar_type() != dtype)
      throw Error(ErrorCode::kUnsupported,
                  config_.folder + ": the buffer '" + one.name + "' is " + exported::name_of(buffer.scalar_type()) +
                      ", and the graph was exported with " + exported::name_of(dtype),
                  "set \"data_types\": {\"buffer_dtype\": \"bf16\"}, or train with torch_autocast in place of bf16");
  }
}

at::Tensor ExportedModule::run_whole(size_t chosen, const NamedBatch& batch) const {
  const Program& program = *config_.programs[chosen];
  const c10::Device device = leading_.device();
  const auto& constants = program.constants_on(device);
  std::vector<c10::IValue> inputs = exported::take_values();
  size_t next_constant = 0;
  for (size_t i = 0; i < program.file().placeholders.size(); ++i) {
    const Placeholder& one = program.file().placeholders[i];
    if (one.kind == Placeholder::Kind::kInput)
      inputs.emplace_back(batch.at(one.target));
    else if (one.kind == Placeholder::Kind::kConstant)
      inputs.emplace_back(constants[next_constant++]);
    else
      inputs.emplace_back(given_[chosen][i]);
  }
  return exported::run(program, std::move(inputs), device);
}

void ExportedModule::require_gradient(size_t chosen, const at::Tensor& loss) const {
  if (is_training() && c10::GradMode::is_enabled() && !loss.requires_grad())
    throw Error(ErrorCode::kArgument, "graph " + config_.programs[chosen]->name() + ": the loss has no gradient",
                "it depends on no parameter that requires one: are all of them frozen?");
}

at::Tensor ExportedModule::forward(const NamedBatch& batch) {
  const size_t chosen = chosen_program(leading_.scalar_type());
  require_buffers_of(leading_.scalar_type());
  exported::require_batch(config_.programs[chosen]->file(), batch, leading_.device());
  // A divided graph recomputes masks and other free steps in every segment, so the graph is divided
  // only where that pays off.
  const exported::Layout& parts = layout();
  at::Tensor loss = detail::has_regions(parts.layers()) ? parts.run(batch) : run_whole(chosen, batch);
  require_gradient(chosen, loss);
  return loss;
}

PretrainedNames ExportedModule::pretrained_names() const { return {.tied = config_.tied, .needs_all = true}; }

}  // namespace gannet
